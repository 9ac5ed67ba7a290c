#!/usr/bin/env bash
# Has Kafka's own DumpLogSegments read our topic logs and indexes, and fails on anything it objects to.
#
#   scripts/kafka-check.sh [TOPICS_DIRECTORY]
#
# Without a directory the example program writes one first. Needs Java 17 and Maven. KAFKA_LIB may
# name a directory that keeps the fetched jars between runs; KAFKA_VERSION chooses another release.
set -euo pipefail
cd "$(dirname "$0")/.."

version="${KAFKA_VERSION:-4.1.1}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
lib="${KAFKA_LIB:-$scratch/lib}"

fetch() {
    cat > "$scratch/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>punctual</groupId>
  <artifactId>kafka-check</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
    mvn -q -B -f "$scratch/pom.xml" dependency:copy-dependencies -DoutputDirectory="$lib"
}

dump() {
    java -cp "$lib/*" kafka.tools.DumpLogSegments "$@" 2>&1 | grep -v '^SLF4J' || true
}

# What the tool prints when it does not like something; it ends with success all the same.
objections='mismatch|out of order|not found|non-consecutive|invalid bytes|isvalid: false|corrupt|exception|error'

check_partition() {
    local dir="$1" files out batches records bytes sane
    files="$(find "$dir" -name '*.log' -o -name '*.index' -o -name '*.timeindex' | sort | paste -sd,)"
    [ -n "$files" ] || return 0
    out="$scratch/out"
    for how in --deep-iteration --verify-index-only --index-sanity-check; do
        dump "$how" --max-message-size 67108864 --files "$files" > "$out"
        # Lines of records show header names, which may be any words.
        if grep -v '^| offset:' "$out" | grep -iE "$objections"; then
            echo "FAILED: $dir, $how"
            return 1
        fi
        case "$how" in
            --deep-iteration)
                batches="$(grep -c '^baseOffset.* isvalid: true' "$out" || true)"
                records="$(grep -c '^| offset:' "$out" || true)"
                bytes="$(sed -nE 's/^baseOffset.* size: ([0-9]+) .*/\1/p' "$out" | awk '{ sum += $1 } END { print sum + 0 }')" ;;
            --index-sanity-check) sane="$(grep -c 'passed sanity check' "$out" || true)" ;;
        esac
    done
    # A broken length would only end the walk early, so the bytes seen must be all there are.
    if [ "${bytes:-0}" != "$(cat "$dir"/*.log | wc -c)" ]; then
        echo "FAILED: $dir, Kafka saw ${bytes:-0} bytes of $(cat "$dir"/*.log | wc -c)"
        return 1
    fi
    echo "$dir: $records records in $batches batches, $bytes bytes, $sane index files"
}

[ -d "$lib" ] || fetch
topics="${1:-}"
if [ -z "$topics" ]; then
    cargo run -q -p punctual-engine --example write_log "$scratch/data"
    topics="$scratch/data/topics"
fi
passed=0
failed=0
while read -r dir; do
    if check_partition "$dir"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done < <(find "$topics" -mindepth 2 -maxdepth 2 -type d | sort)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
