#!/usr/bin/env bash
# The whole programme of faults against real clusters: every fault, with many messages over a long time.
#
#   scripts/cluster-faults.sh [PROGRAM]      the release build unless named
#
# MESSAGES (200000) and WINDOW (300 s) for each fault, LEASE (9 s), FAULTS (all), and PAIRS: coordinator+store,
# all that there are unless named. A line for each fault goes to REPORT (target/cluster-faults.txt).
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
program="${1:-$target/release/punctual}"
[ -x "$program" ] || { echo "build it first: cargo build --release --features punctual-cli/cluster" >&2; exit 2; }
report="$(realpath -m "${REPORT:-$target/cluster-faults.txt}")"
status=0
for pair in ${PAIRS:-etcd+mariadb etcd+cassandra zookeeper+mariadb}; do
    echo "--- $pair"
    PUNCTUAL_FAULTS="${FAULTS:-all}" PUNCTUAL_FAULT_MESSAGES="${MESSAGES:-200000}" PUNCTUAL_FAULT_WINDOW="${WINDOW:-300}" \
        PUNCTUAL_FAULT_LEASE="${LEASE:-9}" PUNCTUAL_FAULT_COORDINATOR="${pair%%+*}" PUNCTUAL_FAULT_STORE="${pair##*+}" \
        PUNCTUAL_FAULT_PROGRAM="$(realpath "$program")" PUNCTUAL_FAULT_REPORT="$report" \
        cargo test --package punctual-cli --features punctual-cli/cluster,punctual-cli/otel --test cluster_faults \
        -- --nocapture || status=1
done
echo "--- $report"
cat "$report"
exit "$status"
