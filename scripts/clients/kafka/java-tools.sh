#!/usr/bin/env bash
# Apache Kafka's own command-line tools against a broker: java-tools.sh JARS HOST:PORT
set -euo pipefail
jars="$1" broker="$2"
cd "$(dirname "$0")"
logging="$PWD/java/log4j2.xml"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
same() { [ "$1" = "$2" ] || fail "$3: found '$(head -c 300 <<<"$1")', wanted '$(head -c 300 <<<"$2")'"; }
tool() {
    local class="$1"
    shift
    timeout --kill-after=5 120 java -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto "-Dlog4j2.configurationFile=$logging" -cp "$jars/*" "$class" "$@"
}
topics() { tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$broker" "$@"; }
groups() { tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$broker" "$@"; }
producer() { tool org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$broker" "$@"; }
consumer() { tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$broker" --timeout-ms 60000 "$@"; }

topic="tools-$$-$RANDOM"
group="group-$topic"
topics --create --topic "$topic" --partitions 1 --config retention.ms=3600000 >/dev/null
topics --list >"$scratch/list"
grep -qx "$topic" "$scratch/list" || fail "the topic is not listed"
topics --describe --topic "$topic" >"$scratch/described"
grep -q 'PartitionCount: 1' "$scratch/described" || fail "$(cat "$scratch/described")"
grep -q 'retention.ms=3600000' "$scratch/described" || fail "$(cat "$scratch/described")"
tool kafka.admin.ConfigCommand --bootstrap-server "$broker" --entity-type topics --entity-name "$topic" \
    --alter --add-config retention.ms=7200000 >/dev/null
tool kafka.admin.ConfigCommand --bootstrap-server "$broker" --entity-type topics --entity-name "$topic" --describe >"$scratch/settings"
grep -q 'retention.ms=7200000' "$scratch/settings" || fail "$(cat "$scratch/settings")"
echo "  kafka-topics and kafka-configs make, list, describe and change a topic"

seq 1 50 | producer --topic "$topic" --command-property acks=all >/dev/null
consumer --topic "$topic" --from-beginning --max-messages 50 --group "$group" >"$scratch/got" 2>"$scratch/told"
same "$(cat "$scratch/got")" "$(seq 1 50)" "what the console consumer printed"
groups --describe --group "$group" >"$scratch/group" 2>&1
awk -v topic="$topic" '$2 == topic && $4 == 50 && $5 == 50 && $6 == 0 { found = 1 } END { exit !found }' "$scratch/group" ||
    fail "the group's offsets: $(cat "$scratch/group")"
groups --reset-offsets --group "$group" --topic "$topic" --to-offset 40 --execute >/dev/null
consumer --topic "$topic" --max-messages 10 --group "$group" >"$scratch/got" 2>"$scratch/told"
same "$(cat "$scratch/got")" "$(seq 41 50)" "what is read after a reset"
groups --list >"$scratch/groups"
grep -qx "$group" "$scratch/groups" || fail "the group is not listed"
groups --delete --group "$group" >/dev/null
echo "  the console producer and consumer, and kafka-consumer-groups: describe, reset, list, delete"

if [ -z "${PLAIN:-}" ]; then
    begun="$(date +%s%3N)"
    printf 'punctual-delay:2s\tlater\n' | producer --topic "$topic" --reader-property parse.headers=true >/dev/null
    consumer --topic "$topic" --partition 0 --offset 51 --max-messages 1 \
        --formatter-property print.headers=true --formatter-property print.offset=true >"$scratch/got" 2>"$scratch/told"
    due="$(sed -nE 's/.*punctual-due:([0-9]+).*/\1/p' "$scratch/got")"
    [ "${due:-0}" -ge $((begun + 2000)) ] && [ "$(date +%s%3N)" -ge "$due" ] || fail "delayed: $(cat "$scratch/got" "$scratch/told")"
    echo "  a delay from the console producer"
fi

tool org.apache.kafka.tools.GetOffsetShell --bootstrap-server "$broker" --topic "$topic" --time latest >"$scratch/offsets"
grep -q "^$topic:0:5" "$scratch/offsets" || fail "kafka-get-offsets: $(cat "$scratch/offsets")"
topics --create --topic "$topic-load" --partitions 3 >/dev/null
for codec in none lz4; do
    tool org.apache.kafka.tools.ProducerPerformance --bootstrap-server "$broker" --topic "$topic-load" --num-records 20000 --record-size 100 \
        --throughput -1 --command-property acks=all "compression.type=$codec" >"$scratch/perf"
    grep -q '^20000 records sent' "$scratch/perf" || fail "kafka-producer-perf-test: $(cat "$scratch/perf")"
done
tool org.apache.kafka.tools.ConsumerPerformance --bootstrap-server "$broker" --topic "$topic-load" --num-records 40000 \
    --timeout 60000 >"$scratch/perf" 2>&1
awk -F', *' 'NR > 1 && $5 >= 40000 { found = 1 } END { exit !found }' "$scratch/perf" || fail "kafka-consumer-perf-test: $(cat "$scratch/perf")"
tool org.apache.kafka.tools.EndToEndLatency --bootstrap-server "$broker" --topic "$topic-load" --num-records 200 --producer-acks all \
    --record-size 100 >"$scratch/perf" 2>&1 || fail "kafka-e2e-latency: $(tail -3 "$scratch/perf")"
echo "  the perf tools"
tool org.apache.kafka.tools.VerifiableProducer --bootstrap-server "$broker" --topic "$topic" --max-messages 500 --acks -1 >"$scratch/verified"
grep -q '"sent":500,.*"acked":500\|"acked":500,.*"sent":500' "$scratch/verified" || fail "the verifiable producer: $(tail -1 "$scratch/verified")"
topics --delete --topic "$topic"
topics --delete --topic "$topic-load"
topics --list >"$scratch/list"
! grep -q "$topic" "$scratch/list" || fail "the topics are still listed"
echo "all is well"
