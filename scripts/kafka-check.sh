#!/usr/bin/env bash
# Has Kafka's own DumpLogSegments read our topic logs and indexes, and fails on anything it objects to.
#
#   scripts/kafka-check.sh [TOPICS_DIRECTORY]
#
# Without a directory the example program writes one first. Needs Java 17 and Maven. KAFKA_LIB may
# name a directory with the jars of another release.
set -euo pipefail
topics="$(realpath -e "${1:-/}")"
cd "$(dirname "$0")"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
lib="${KAFKA_LIB:-}"
[ -n "$lib" ] || lib="$(clients/kafka/kafka.sh --jars)"

# All files go to one run of the tool, which starts slowly; what it says is told apart by its headings.
dump() {
    xargs -d '\n' -n 600 echo <"$scratch/files" | tr ' ' ',' | while read -r files; do
        java -Xmx512m -XX:+UseSerialGC "-Dlog4j2.configurationFile=$PWD/clients/kafka/java/log4j2.xml" -cp "$lib/*" \
            org.apache.kafka.tools.DumpLogSegments "$1" --max-message-size 67108864 --files "$files" </dev/null 2>&1 || true
    done
}

# Prints what the tool objects to, with the file it was reading; it ends with success all the same.
#
# The offsets of delayed records stay empty, as compaction would leave them. The tool lists such a gap
# as "non-consecutive", and in the same way an offset that comes twice or goes back, which is a fault.
# Lines of records are passed over, since they show names of headers, which may be any words.
objections() {
    awk -v how="$1" '
        function object(what) { print "FAILED: " file ", " how ": " what; bad = 1 }
        /^Dumping / { file = $2; listed = 0; next }
        /^\| offset:/ { next }
        /[Nn]on-consecutive/ { listed = 1; next }
        listed && / is followed by / {
            line = $0
            gsub(/[^0-9]+/, " ", line)
            split(line, pair, " ")
            if (pair[2] + 0 <= pair[1] + 0) object($0)
            next
        }
        tolower($0) ~ /mismatch|out of order|not found|invalid bytes|isvalid: false|corrupt|exception|error/ { object($0) }
        END { exit bad }' "$2"
}

if [ "$#" -eq 0 ]; then
    cargo run -q -p punctual-engine --example write_log "$scratch/data"
    topics="$scratch/data/topics"
fi
find "$topics" -name '*.log' -o -name '*.index' -o -name '*.timeindex' | sort >"$scratch/files"
failed=0
for how in --deep-iteration --verify-index-only --index-sanity-check; do
    dump "$how" >"$scratch/out$how"
    objections "$how" "$scratch/out$how" || failed=1
done
out="$scratch/out--deep-iteration"
# A broken length would only end the walk early, so the bytes seen must be all there are.
seen="$(sed -nE 's/^baseOffset.* size: ([0-9]+) .*/\1/p' "$out" | awk '{ sum += $1 } END { print sum + 0 }')"
there="$(find "$topics" -name '*.log' -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')"
if [ "$seen" != "$there" ]; then
    echo "FAILED: Kafka saw $seen bytes of $there"
    failed=1
fi
logs="$(grep -c '^Dumping .*\.log$' "$out" || true)"
batches="$(grep -c '^baseOffset.* isvalid: true' "$out" || true)"
empty="$(grep -c '^baseOffset.* count: 0 .* isvalid: true' "$out" || true)"
packed="$(grep '^baseOffset' "$out" | grep -vc 'compresscodec: none' || true)"
records="$(grep -c '^| offset:' "$out" || true)"
gaps="$(grep -c ' is followed by ' "$out" || true)"
sane="$(grep -c 'passed sanity check' "$scratch/out--index-sanity-check" || true)"
echo "$logs logs, $sane sound indexes, $seen bytes: $records records in $batches batches, of which $empty are empty and $packed compressed; $gaps gaps"
[ "$failed" = 0 ] && [ "$logs" -gt 0 ] && [ "$batches" -gt 0 ] && echo "no objections"
