#!/usr/bin/env bash
# Holds a running server to the OpenAPI document that it serves.
#
#   scripts/openapi-check.sh --install            fetches the tools only
#   scripts/openapi-check.sh document URL         the document is legal, and so are its examples
#   scripts/openapi-check.sh client URL DIR       a generated client sends, looks, receives and acknowledges
#   scripts/openapi-check.sh fuzz URL [OPTIONS]   schemathesis; the options are its own
#
# A token for a server with authentication is taken from PUNCTUAL_TOKEN.
set -euo pipefail
cd "$(dirname "$0")/.."

# Some of its programs start others from a directory of their own.
tools="$(realpath -m "${CARGO_TARGET_DIR:-target}")/openapi-check/1"
packages=(schemathesis==4.32.5 openapi-spec-validator==0.9.0 openapi-python-client==0.29.1)

if [ ! -x "$tools/bin/schemathesis" ]; then
    mkdir -p "$(dirname "$tools")"
    # Made where it stays: its programs have the path written into them.
    exec 9>"$tools.lock"
    flock 9
    if [ ! -x "$tools/bin/schemathesis" ]; then
        rm -rf "$tools"
        if ! { python3 -m venv "$tools" && "$tools/bin/python" -m pip install --quiet \
            --disable-pip-version-check --no-compile "${packages[@]}" >&2; }; then
            rm -rf "$tools"
            echo "the OpenAPI checks need Python 3.11 or newer with venv and pip, and ${packages[*]}" >&2
            exit 1
        fi
    fi
    exec 9>&-
fi

what="${1:?say what to do: --install, document, client or fuzz}"
shift
case "$what" in
--install) ;;
document) exec "$tools/bin/python" scripts/openapi/document.py "$@" ;;
client)
    url="$1" dir="$2"
    mkdir -p "$dir"
    # A document that nobody changed must give a client without a warning.
    PATH="$tools/bin:$PATH" "$tools/bin/openapi-python-client" generate --url "$url/openapi.json" \
        --output-path "$dir/punctual_http" --meta none --overwrite --fail-on-warning \
        --config scripts/openapi/client.yaml
    PYTHONPATH="$dir" exec "$tools/bin/python" scripts/openapi/client.py "$url"
    ;;
fuzz)
    url="$1"
    shift
    "$tools/bin/python" scripts/openapi/prepare.py "$url"
    token=()
    [ -z "${PUNCTUAL_TOKEN:-}" ] || token=(--header "Authorization: Bearer $PUNCTUAL_TOKEN")
    # Streams of events have no end, so there is nothing to compare them with.
    SCHEMATHESIS_HOOKS=scripts/openapi/hooks.py PYTHONDONTWRITEBYTECODE=1 \
        exec "$tools/bin/schemathesis" --config-file scripts/openapi/schemathesis.toml run "$url/openapi.json" \
        --checks all --exclude-operation-id receiveStream --exclude-operation-id liveFigures --no-color --continue-on-failure \
        --request-timeout 30 "${token[@]}" "$@"
    ;;
*)
    echo "$what is not one of --install, document, client and fuzz" >&2
    exit 2
    ;;
esac
