#!/usr/bin/env bash
# Three nodes over etcd, MariaDB and Kafka, for a look: `make cluster`. Ends them all on Ctrl-C.
#
#   scripts/cluster.sh [PROGRAM]      the release build unless named
#
# NODES=5 starts more. COORDINATOR=zookeeper and STORE=cassandra take the other services. Everything lies in
# target/cluster; what is pending is still there at the next start. `rm -r target/cluster` forgets it.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
program="${1:-$target/release/punctual}"
[ -x "$program" ] || { echo "build it first: cargo build --release --features punctual-cli/cluster" >&2; exit 2; }
program="$(realpath "$program")"
nodes="${NODES:-3}" coordinator="${COORDINATOR:-etcd}" store="${STORE:-mariadb}"
home="$target/cluster"
mkdir -p "$home"
# A second one on the same folder would take the first one's ports.
exec 7>"$home/lock"
flock -n 7 || { echo "a cluster is running already in $home" >&2; exit 1; }

pids=()
finish() {
    local code="$1"
    # A second Ctrl-C does not leave half of them behind.
    trap '' INT TERM
    trap - EXIT
    echo
    echo "ending the nodes and the services …"
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    scripts/services down --dir "$home/services" || true
    exit "$code"
}
trap 'finish $?' EXIT
# Being ended is what it is for.
trap 'finish 0' INT TERM

echo "starting $coordinator, $store and Kafka …"
scripts/services up "$coordinator" "$store" kafka --dir "$home/services" 7>&- >/dev/null
eval "$(scripts/services env --dir "$home/services")"
case "$coordinator" in etcd) at="$ETCD_ADDRESS" ;; *) at="$ZOOKEEPER_ADDRESS" ;; esac

timeline() {
    if [ "$store" = cassandra ]; then
        printf '%s\n' '[timeline]' 'kind = "cassandra"' "endpoints = [\"$CASSANDRA_ADDRESS\"]" \
            'replication = 1' 'allow_unsafe = ["replication"]   # one Cassandra for a look; three or more in earnest'
    else
        printf '%s\n' '[timeline]' 'kind = "mysql"' "url = \"mysql://root@$MARIADB_ADDRESS/punctual\""
    fi
}

[ -f "$home/secret" ] || (umask 077 && head -c 24 /dev/urandom | base64 >"$home/secret")
for n in $(seq "$nodes"); do
    mkdir -p "$home/node$n"
    cat >"$home/node$n.toml" <<TOML
[http]
listen = "127.0.0.1:$((7070 + n))"
[store]
data = "$home/node$n"
[cluster]
coordinator = "$coordinator"
endpoints = ["$at"]
node = "node$n"
secret_file = "$home/secret"
$(timeline)
[outlet]
kind = "kafka"
brokers = "$KAFKA_ADDRESS"
TOML
    # In a group of its own: Ctrl-C is for this script, which ends them in order.
    setsid "$program" serve --config "$home/node$n.toml" </dev/null >"$home/node$n.log" 2>&1 7>&- &
    pids+=($!)
done
for n in $(seq "$nodes"); do
    until curl -fsS -o /dev/null "http://127.0.0.1:$((7070 + n))/health/ready" 2>/dev/null; do
        kill -0 "${pids[$((n - 1))]}" 2>/dev/null || { echo "node$n has ended:" && tail -20 "$home/node$n.log" && exit 1; }
        sleep 0.1
    done
    echo "node$n  http://127.0.0.1:$((7070 + n))  process ${pids[$((n - 1))]}  $home/node$n.log"
done
cat <<TOUR

It runs: ${coordinator} at $at, ${store}, Kafka at $KAFKA_ADDRESS. Try, in another terminal:

  export PATH="$(dirname "$program"):\$PATH" PUNCTUAL_SERVER=http://127.0.0.1:7071

  punctual cluster                                          # who is there, and who owns how many slots
  punctual send orders 'close order 42' --delay 20s         # any node takes it
  punctual --server http://127.0.0.1:7072 list orders       # and any other knows of it
  kcat -b $KAFKA_ADDRESS -C -t orders -f '%T %h %s\n'       # in Kafka when it is due, and not a moment sooner

  for i in \$(seq 100); do punctual -q send jobs "job \$i" --delay 30s; done
  kill -9 ${pids[$((nodes - 1))]}                                             # a node; the others take its slots over
  punctual cluster                                          # after the lease, 9 seconds, and a moment
  kcat -b $KAFKA_ADDRESS -C -t jobs -e -q | wc -l           # all hundred, 30 seconds after they were sent

Ctrl-C ends everything; what is pending stays in $home for the next time.
TOUR
# Signals are heard between two of these.
while true; do sleep 1 & wait $! || true; done
