#!/usr/bin/env bash
# The contract called by Dubbo's client for Java: ADDRESS of a server on this machine. By hand only; it needs
# a JDK 17 and Maven, which fetches Dubbo. While it runs, the server is reachable from the network.
set -euo pipefail
address="${1:?give the address of a server, as 127.0.0.1:7070}"
cd "$(dirname "$0")/java"
target="${CARGO_TARGET_DIR:-$(cd ../../.. && pwd)/target}/clients/java"
mvn -q -B -Dbuild.dir="$target" compile
coproc forward { exec python3 forward.py "$address"; }
trap 'kill "$forward_PID"' EXIT
read -r port <&"${forward[0]}"
mvn -q -B -Dbuild.dir="$target" exec:java -Dexec.args="127.0.0.1:$port"
