#!/usr/bin/env bash
# Runs otlp-receiver.py with the packages it needs, which are fetched on first use.
#
#   scripts/otlp-receiver.sh --install    fetches only
#   scripts/otlp-receiver.sh              receives spans until its input ends
set -euo pipefail
cd "$(dirname "$0")/.."

grpc=1.85.1
otlp=1.45.2
lib="${CARGO_TARGET_DIR:-target}/otlp-receiver/grpcio-$grpc-otlp-$otlp"

if [ ! -d "$lib" ]; then
    mkdir -p "$(dirname "$lib")"
    scratch="$(mktemp -d "$(dirname "$lib")/fetch.XXXXXX")"
    trap 'rm -rf "$scratch"' EXIT
    if ! PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet \
        --disable-pip-version-check --no-warn-conflicts --no-compile --only-binary :all: \
        --target "$scratch/lib" "grpcio==$grpc" "opentelemetry-proto==$otlp" >&2; then
        echo "the receiver of traces needs Python 3.9 or newer with pip, and the packages" \
            "grpcio $grpc and opentelemetry-proto $otlp" >&2
        exit 1
    fi
    # Somebody else may have been quicker; then theirs is as good.
    [ -d "$lib" ] || mv "$scratch/lib" "$lib"
    rm -rf "$scratch"
    trap - EXIT
fi
[ "${1:-}" = --install ] || PYTHONPATH="$lib" exec python3 scripts/otlp-receiver.py
