#!/usr/bin/env bash
# kcat (an old librdkafka) against a broker: kcat-client.sh HOST:PORT
# With PLAIN set the broker is one that does not delay.
set -euo pipefail
broker="$1"
scratch="$(mktemp -d)"
pids=()
finish() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap finish EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
same() { [ "$1" = "$2" ] || fail "$3: found '$(head -c 300 <<<"$1")', wanted '$(head -c 300 <<<"$2")'"; }
# Every wait has an end; only a failing run waits so long.
kcat() { timeout --kill-after=5 90 kcat -b "$broker" -m 30 "$@"; }
name() { echo "kcat-$1-$$-$RANDOM"; }
until_true() {
    local what="$1" end=$((SECONDS + 60))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "waited too long for $what"
        sleep 0.1
    done
}

kcat -L >"$scratch/list"
grep -q '1 brokers' "$scratch/list" || fail "the list of brokers: $(cat "$scratch/list")"
# An old client makes a topic by using it.
topic="$(name topic)"
seq 1 100 | kcat -P -t "$topic" -p 0
kcat -L -t "$topic" | grep -q "topic \"$topic\" with" || fail "the topic is not listed"
same "$(kcat -C -t "$topic" -p 0 -o beginning -e -q)" "$(seq 1 100)" "what was sent"
same "$(kcat -C -t "$topic" -p 0 -o -5 -e -q)" "$(seq 96 100)" "the last five"
same "$(kcat -Q -t "$topic:0:-1" | awk '{ print $NF }')" 100 "the next offset"
same "$(kcat -Q -t "$topic:0:-2" | awk '{ print $NF }')" 0 "the first offset"
same "$(kcat -Q -t "$topic:0:1" | awk '{ print $NF }')" 0 "the offset of a time"
echo "  lists, produces, consumes and asks for offsets"

for codec in none gzip snappy lz4 zstd; do
    topic="$(name "$codec")"
    if [ "$codec" = none ]; then how=(); else how=(-z "$codec"); fi
    seq 1 500 | sed 's/$/:a long line that can be made shorter, a long line that can be made shorter/' >"$scratch/sent"
    kcat -P -t "$topic" -p 0 "${how[@]}" -H plain=value -H 'empty=' -H nothing "$scratch/sent" -l
    kcat -C -t "$topic" -p 0 -o beginning -e -q -f '%s\n' >"$scratch/got"
    cmp "$scratch/sent" "$scratch/got" || fail "$codec: something else came back"
    same "$(kcat -C -t "$topic" -p 0 -o beginning -c 1 -q -f '%h')" 'plain=value,empty=,nothing=NULL' "$codec: headers"
done
echo "  none, gzip, snappy, lz4, zstd: values and headers come back"

topic="$(name idempotent)"
seq 1 2000 | kcat -P -t "$topic" -p 0 -X enable.idempotence=true -X acks=all
same "$(kcat -C -t "$topic" -p 0 -o beginning -e -q)" "$(seq 1 2000)" "an idempotent producer"
echo "  an idempotent producer: each record once, in order"

if [ -z "${PLAIN:-}" ]; then
    topic="$(name later)"
    begun="$(date +%s%3N)"
    echo later | kcat -P -t "$topic" -p 0 -H punctual-delay=2s -H kept=here
    echo now | kcat -P -t "$topic" -p 0
    kcat -C -t "$topic" -p 0 -o beginning -c 2 -q -f '%o %s %h\n' >"$scratch/got"
    arrived="$(date +%s%3N)"
    same "$(sed -n 1p "$scratch/got")" "1 now " "the undelayed one"
    [[ "$(sed -n 2p "$scratch/got")" =~ ^2\ later\ .*kept=here.*$ ]] || fail "the delayed one: $(cat "$scratch/got")"
    due="$(sed -nE 's/.*punctual-due=([0-9]+).*/\1/p' "$scratch/got")"
    [ "${due:-0}" -ge $((begun + 2000)) ] || fail "due $due, sent after $begun"
    [ "$arrived" -ge "$due" ] || fail "due $due, came $arrived"
    echo "  a delayed record comes, not early, at a new offset, with its headers"
fi

# A group: what was committed is not read again, and what a killed member held is taken over.
topic="$(name group)"
group="$(name group)"
seq 1 20 | kcat -P -t "$topic" -p 0
settings=(-X auto.offset.reset=earliest -X session.timeout.ms=15000 -X heartbeat.interval.ms=500 -X auto.commit.interval.ms=100)
member() { timeout --kill-after=5 300 kcat -b "$broker" -u "${settings[@]}" -G "$group" "$topic" >"$1" 2>"$1.said" & }
has() { [ "$(wc -l <"$1")" -ge "$2" ]; }
kcat "${settings[@]}" -c 20 -q -G "$group" "$topic" >"$scratch/first"
same "$(sort -n "$scratch/first")" "$(seq 1 20)" "the first run of a group"
member "$scratch/killed" && killed=$! && pids+=("$killed")
until_true "a member" grep -q 'assigned:' "$scratch/killed.said"
seq 21 40 | kcat -P -t "$topic" -p 0
until_true "the records of the second run" has "$scratch/killed" 20
same "$(sort -n "$scratch/killed")" "$(seq 21 40)" "the second run of a group"
# The client itself, not the watcher before it.
pkill -9 -P "$killed"
member "$scratch/next" && next=$! && pids+=("$next")
seq 41 60 | kcat -P -t "$topic" -p 0
until_true "the partitions of the one that was killed" grep -qx 60 "$scratch/next"
# What was read but not yet committed may come again; nothing may be missing.
same "$(sort -nu "$scratch/next" | tail -20)" "$(seq 41 60)" "the third run of a group"
kill "$next"
wait "$next" || true
echo "  groups resume, and take over from a member that is killed"
echo "all is well"
