#!/usr/bin/env bash
# librdkafka's own tests against a running broker.
#
#   scripts/clients/kafka/librdkafka-suite.sh --install           builds the library and its tests, once
#   scripts/clients/kafka/librdkafka-suite.sh HOST:PORT [NAME]…   runs the tests of librdkafka-tests.txt
#
# The source is in the crate rdkafka-sys. JOBS tests run at a time; most of them mostly wait. Ends with
# `N passed, N failed`; what a failed test said is printed. KEEP names a directory for all they say.
set -euo pipefail
cd "$(dirname "$0")"
here="$PWD"
root="$(cd ../../.. && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
case "$target" in /*) ;; *) target="$root/$target" ;; esac
tools="$target/clients/kafka-1/librdkafka"
jobs="${JOBS:-4}"
# Longest time for one test; the slowest takes half a minute.
limit_s=180

have() { command -v "$1" >/dev/null 2>&1; }

source_dir() {
    cargo metadata --quiet --locked --format-version 1 --manifest-path rust/Cargo.toml |
        python3 -c 'import json, os, sys
packages = json.load(sys.stdin)["packages"]
print(next(os.path.dirname(p["manifest_path"]) for p in packages if p["name"] == "rdkafka-sys"))'
}

install() {
    local from
    have make && have cc && have python3 || { echo "make, a C++ compiler and Python 3 are needed" >&2; exit 3; }
    mkdir -p "$tools"
    exec 9>"$tools.lock"
    flock 9
    from="$(source_dir)"
    [ -f "$tools/built" ] && [ "$(cat "$tools/built")" = "$(basename "$from")" ] && return 0
    rm -rf "$tools" && mkdir -p "$tools"
    cp -r "$from/librdkafka" "$tools/source"
    # What is left out needs headers that not every machine has; speed is not what is tested.
    (
        cd "$tools/source"
        ./configure --disable-optimization --disable-ssl --disable-gssapi --disable-curl --disable-zstd \
            --prefix="$tools/prefix" >"$tools/build.log" 2>&1
        make -j"$(nproc)" libs >>"$tools/build.log" 2>&1
        make -C tests -j"$(nproc)" build >>"$tools/build.log" 2>&1
        make install >>"$tools/build.log" 2>&1
    ) || { tail -20 "$tools/build.log" >&2; exit 1; }
    basename "$from" >"$tools/built"
}

# One test: `one quick|full NAME [PART]`. Its output is kept; the line of its outcome is printed.
one() {
    local how=() name="$2" subtest="${3:-}" label="$2${3:+:$3}" begun=$SECONDS log outcome
    [ "$1" = full ] || how=(-Q)
    log="$SCRATCH/$label.log"
    (cd "$tools/source/tests" && TESTS="$name" SUBTESTS="$subtest" \
        timeout --kill-after=5 "$limit_s" ./test-runner "${how[@]}" -L -p1) >"$log" 2>&1 </dev/null || true
    sed -i 's/\x1b\[[0-9;]*m//g' "$log"
    # The runner takes all tests of a number: each of them counts, unless it was passed over. A quick run
    # passes over parts that take long; one that did nothing at all has shown nothing.
    outcome="$(awk -v name="$name" '
        $1 == "|" && substr($2, 1, 4) == substr(name, 1, 4) && $4 == "FAILED" { failed = 1 }
        $1 == "|" && $2 == name { outcome = $4 == "PASSED" && $6 == "0.000s" ? "NOTHING" : $4 }
        END { print failed ? "FAILED" : outcome }' "$log")"
    # A run that ended before its summary has failed.
    echo "$label ${outcome:-FAILED} $((SECONDS - begun))" | tee -a "$SCRATCH/outcomes"
}

# Some tests measure times, which others beside them upset: what failed has two more tries by itself.
again() {
    mv "$SCRATCH/outcomes" "$SCRATCH/first"
    grep ' PASSED ' "$SCRATCH/first" >"$SCRATCH/outcomes" || true
    while read -r label outcome _; do
        [ "$outcome" = PASSED ] && continue
        echo "$label again, by itself:"
        how="$(awk -v name="${label%%:*}" '$1 == name { print $2 }' librdkafka-tests.txt)"
        if [ "$label" = "${label%%:*}" ]; then one "$how" "$label"; else one "$how" "${label%%:*}" "${label#*:}"; fi
    done <"$SCRATCH/first"
}

run() {
    local wanted=("$@") list=librdkafka-tests.txt
    : >"$SCRATCH/outcomes"
    awk '$2 == "quick" || $2 == "full" { if (NF < 3) print $2, $1; for (at = 3; at <= NF; at++) print $2, $1, $at }' "$list" |
        # The long ones first, so that none is waited for at the end.
        sort |
        if [ "${#wanted[@]}" -gt 0 ]; then grep -F "$(printf '%s\n' "${wanted[@]}")"; else cat; fi |
        xargs -P "$jobs" -L 1 "$here/librdkafka-suite.sh" --one
    again
    again
    while read -r label outcome _; do
        [ "$outcome" = PASSED ] && continue
        echo "---- $label: $outcome"
        grep -aE -A3 'TEST FAILURE|Assertion|not supported' "$SCRATCH/$label.log" | head -12 || tail -5 "$SCRATCH/$label.log"
    done <"$SCRATCH/outcomes"
    [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP" && cp "$SCRATCH"/*.log "$SCRATCH/outcomes" "$KEEP/"; }
    passed="$(grep -c ' PASSED ' "$SCRATCH/outcomes" || true)"
    failed="$(grep -vc ' PASSED ' "$SCRATCH/outcomes" || true)"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

case "${1:?say HOST:PORT, or --install}" in
--install) install ;;
--one)
    shift
    one "$@"
    ;;
*)
    ./librdkafka-suite.sh --install
    SCRATCH="$(mktemp -d)"
    trap 'rm -rf "$SCRATCH"' EXIT
    export SCRATCH BROKERS="$1" TEST_KAFKA_VERSION="${TEST_KAFKA_VERSION:-3.9.0}" TEST_LEVEL=2 RDKAFKA_GITVER=none
    export LD_LIBRARY_PATH="$tools/source/src:$tools/source/src-cpp" RDKAFKA_TEST_CONF="$SCRATCH/test.conf"
    # In CI the runner would choose how many run at a time.
    unset CI
    echo "bootstrap.servers=$1" >"$RDKAFKA_TEST_CONF"
    shift
    run "$@"
    ;;
esac
