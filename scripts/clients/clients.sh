#!/usr/bin/env bash
# Calls a running server with clients that other people wrote.
#
#   scripts/clients/clients.sh --install        fetches the clients and makes their stubs
#   scripts/clients/clients.sh NAME ADDRESS     one of them against a server, as 127.0.0.1:7070
#
# The names: grpcio, dubbo-python, grpcurl, dubbo-node.
# A client whose language is not on the machine is not there: then the exit code is 3.
set -euo pipefail
cd "$(dirname "$0")"
here="$PWD"
root="$(cd ../.. && pwd)"
contract="$root/crates/proto/proto"
target="${CARGO_TARGET_DIR:-$root/target}"
case "$target" in /*) ;; *) target="$root/$target" ;; esac
tools="$target/clients/1"

have() { command -v "$1" >/dev/null 2>&1; }

# These are called where a failure is looked at, so a failed step must not be followed by another.

# Runs the rest with a lock of its own, so that tests may come at the same time.
locked() {
    mkdir -p "$tools"
    exec 9>"$tools/$1.lock"
    flock 9
}

# The stubs follow the contract.
fresh() {
    local mark="$tools/$1.sum" now
    now="$(cat "$contract"/punctual/v1/*.proto "$here/$2" | sha256sum)"
    [ -f "$mark" ] && [ "$(cat "$mark")" = "$now" ]
}

made() {
    cat "$contract"/punctual/v1/*.proto "$here/$2" | sha256sum >"$tools/$1.sum"
}

python() {
    have python3 || return 3
    (
        locked python
        if ! fresh python python-requirements.txt; then
            rm -rf "$tools/python" &&
                python3 -m venv "$tools/python" &&
                "$tools/python/bin/python" -m pip install --quiet --disable-pip-version-check \
                    --no-compile --requirement python-requirements.txt >&2 &&
                mkdir -p "$tools/python/stubs" &&
                "$tools/python/bin/python" -m grpc_tools.protoc --proto_path "$contract" \
                    --python_out "$tools/python/stubs" --grpc_python_out "$tools/python/stubs" \
                    punctual/v1/punctual.proto &&
                made python python-requirements.txt
        fi
    )
}

grpcurl() {
    have go || return 3
    (
        locked grpcurl
        if [ ! -x "$tools/go/bin/grpcurl" ]; then
            GOBIN="$tools/go/bin" GOFLAGS=-mod=mod \
                go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3 >&2
        fi
    )
}

node() {
    have npm || return 3
    (
        locked node
        if ! fresh node node/package-lock.json; then
            rm -rf "$tools/node" &&
                mkdir -p "$tools/node" &&
                cp node/package.json node/package-lock.json node/buf.gen.yaml "$tools/node/" &&
                cd "$tools/node" &&
                npm ci --silent --no-audit --no-fund >&2 &&
                PATH="$PWD/node_modules/.bin:$PATH" buf generate "$contract" >&2 &&
                made node node/package-lock.json
        fi
    )
}

need() {
    "$1" && return 0
    local code=$?
    [ "$code" -eq 3 ] && echo "$2 is not on this machine" >&2
    exit "$code"
}

what="${1:?say which client: --install, grpcio, dubbo-python, grpcurl or dubbo-node}"
case "$what" in
--install)
    for language in python grpcurl node; do
        "$language" || { code=$?; [ "$code" -eq 3 ] || exit "$code"; }
    done
    ;;
grpcio | dubbo-python)
    need python "Python 3"
    PYTHONPATH="$tools/python/stubs" exec "$tools/python/bin/python" "${what//-/_}_client.py" "$2"
    ;;
grpcurl)
    need grpcurl "Go"
    exec ./grpcurl-client.sh "$tools/go/bin/grpcurl" "$2"
    ;;
dubbo-node)
    need node "Node.js with npm"
    cp node/client.mjs "$tools/node/client.$$.mjs"
    trap 'rm -f "$tools/node/client.$$.mjs"' EXIT
    command node "$tools/node/client.$$.mjs" "$2"
    ;;
*)
    echo "there is no client $what" >&2
    exit 2
    ;;
esac
