#!/usr/bin/env bash
# Fuzzes everything that reads bytes of Kafka clients: requests of every API, and record batches.
#
#   scripts/fuzz.sh [SECONDS]     so long for each target; 60 when nothing is said
#
# Needs a C++ compiler, but no other Rust than the one the project is built with. Starts from the
# corpus in fuzz/corpus and keeps what it finds in fuzz/found. A crash ends it and leaves the input in
# fuzz/artifacts. Prints the executions of each target, and of all.
set -euo pipefail

cd "$(dirname "$0")/../fuzz"
seconds="${1:-60}"
case "$seconds" in
'' | *[!0-9]*)
    echo "$seconds is not a number of seconds" >&2
    exit 2
    ;;
esac

target="$(rustc -vV | sed -n 's/^host: //p')"
# What cargo-fuzz passes, as far as a stable compiler takes it: counters and comparisons for the fuzzer.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
cargo build --release --target "$target"
programs="$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/$target/release"

total=0
for name in requests batches; do
    mkdir -p "found/$name" "artifacts/$name"
    "$programs/$name" "found/$name" "corpus/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=512 -malloc_limit_mb=64 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="artifacts/$name/" >"found/$name.log" 2>&1 || {
        tail -n 40 "found/$name.log" >&2
        exit 1
    }
    executions="$(sed -n 's/^stat::number_of_executed_units: *//p' "found/$name.log")"
    echo "$name: $executions executions"
    total=$((total + executions))
done
echo "all: $total executions"
