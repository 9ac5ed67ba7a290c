#!/usr/bin/env bash
# Apache Kafka and this broker, one after the other, under Apache Kafka's own kafka-producer-perf-test.
#
#   scripts/clients/kafka/compare-kafka.sh [PROGRAM]      the release build unless named
#
# Equal durability: `os` is Kafka's default (the system writes when it likes) against our --durability os;
# `fsync` is Kafka with log.flush.interval.messages=1 against our default, each with acks=all. Rounds
# alternate, so that neither has the quieter machine. RECORDS_100, RECORDS_1024, ROUNDS change the size; HEAP Kafka's.
set -euo pipefail
cd "$(dirname "$0")"
root="$(cd ../../.. && pwd)"
program="${1:-${CARGO_TARGET_DIR:-$root/target}/release/punctual}"
[ -x "$program" ] || { echo "build it first: cargo build --release" >&2; exit 2; }
program="$(realpath "$program")"
jars="$(./kafka.sh --jars)"
logging="$PWD/java/log4j2.xml"
scratch="$(mktemp -d)"
pid=
finish() {
    [ -z "$pid" ] || { kill -9 "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; }
    rm -rf "$scratch"
}
trap finish EXIT

java_run() { java "-Dlog4j2.configurationFile=$logging" "$@"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_apache() {
    local durability="$1" controller
    broker="127.0.0.1:$(free_port)"
    controller="127.0.0.1:$(free_port)"
    cat >"$scratch/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@$controller
listeners=PLAINTEXT://$broker,CONTROLLER://$controller
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$scratch/data
offsets.topic.replication.factor=1
PROPERTIES
    [ "$durability" = os ] || echo 'log.flush.interval.messages=1' >>"$scratch/server.properties"
    java_run -cp "$jars/*" kafka.tools.StorageTool format -t "$(java_run -cp "$jars/*" kafka.tools.StorageTool random-uuid)" \
        -c "$scratch/server.properties" >/dev/null
    java_run -Xmx"${HEAP:-1g}" -cp "$jars/*" kafka.Kafka "$scratch/server.properties" >"$scratch/log" 2>&1 &
    pid=$!
}

start_ours() {
    broker="127.0.0.1:$(free_port)"
    "$program" serve --data "$scratch/data" --http 127.0.0.1:0 --kafka "$broker" --durability "$1" >"$scratch/log" 2>&1 &
    pid=$!
}

stop() {
    kill "$pid"
    wait "$pid" || true
    pid=
    rm -rf "$scratch/data"
}

perf() {
    java_run -Xmx512m -cp "$jars/*" org.apache.kafka.tools.ProducerPerformance --bootstrap-server "$broker" --topic load \
        --num-records "$1" --record-size "$2" --throughput -1 --command-property acks=all "${@:3}" | tail -1
}

# The best of a broker counts: what slows a round is the machine.
measure() {
    local who="$1" durability="$2" size="$3" records="$4" line
    "start_$who" "$durability"
    until java_run -cp "$jars/*" org.apache.kafka.tools.TopicCommand --bootstrap-server "$broker" --create --topic load --partitions 4 \
        >/dev/null 2>&1; do
        kill -0 "$pid" || { cat "$scratch/log" >&2; exit 1; }
    done
    perf $((records / 5)) "$size" >/dev/null
    line="$(perf "$records" "$size")"
    stop
    echo "$who $durability $size $line" | tee -a "$scratch/lines"
}

: >"$scratch/lines"
for durability in os fsync; do
    for size in 100 1024; do
        records="$([ "$size" = 100 ] && echo "${RECORDS_100:-3000000}" || echo "${RECORDS_1024:-500000}")"
        for _ in $(seq "${ROUNDS:-2}"); do
            for who in apache ours; do measure "$who" "$durability" "$size" "$records"; done
        done
    done
done
echo
echo '| durability | record | Apache Kafka, records/s | ours, records/s | ratio |'
echo '|---|---|---|---|---|'
awk '{
    for (at = 1; at <= NF; at++) if ($at ~ /^records\/sec/) rate = $(at - 1) + 0
    key = $2 " | " $3 " B"
    if (!(key in seen)) { order[++count] = key; seen[key] = 1 }
    if (rate > best[$1, key]) best[$1, key] = rate
}
END {
    for (at = 1; at <= count; at++) {
        key = order[at]
        printf "| %s | %d | %d | %.2f |\n", key, best["apache", key], best["ours", key], best["ours", key] / best["apache", key]
    }
}' "$scratch/lines"
