#!/usr/bin/env bash
# Runs cron-oracle.py with the one package it needs, which is fetched on first use.
#
#   scripts/cron-oracle.sh --install      fetches only
#   scripts/cron-oracle.sh < questions    answers
set -euo pipefail
cd "$(dirname "$0")/.."

version=6.2.4
lib="${CARGO_TARGET_DIR:-target}/cron-oracle/croniter-$version"

if [ ! -d "$lib" ]; then
    mkdir -p "$(dirname "$lib")"
    scratch="$(mktemp -d "$(dirname "$lib")/fetch.XXXXXX")"
    trap 'rm -rf "$scratch"' EXIT
    if ! PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet \
        --disable-pip-version-check --no-warn-conflicts --no-compile \
        --target "$scratch/lib" "croniter==$version" tzdata >&2; then
        echo "the cron oracle needs Python 3.9 or newer with pip, and the package croniter $version" >&2
        exit 1
    fi
    # Somebody else may have been quicker; then theirs is as good.
    [ -d "$lib" ] || mv "$scratch/lib" "$lib"
    rm -rf "$scratch"
    trap - EXIT
fi
[ "${1:-}" = --install ] || PYTHONPATH="$lib" exec python3 scripts/cron-oracle.py
