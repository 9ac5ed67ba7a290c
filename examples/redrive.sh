#!/usr/bin/env bash
# What to do with dead letters: look at them, count, send one with its fault mended, send the rest
# again slowly, and throw away what nobody needs.
#
#   make run                                                      # in another terminal
#   PATH="$PWD/target/release:$PATH" examples/redrive.sh
#
# PUNCTUAL_SERVER names another server.
set -euo pipefail

topic=invoices-$$
group=mailer
trap 'punctual topics delete "$topic" >/dev/null' EXIT

# A group that gives up at the first failure, to be quick about it.
punctual groups create "$topic" "$group" --max-attempts 1 >/dev/null

# consume COUNT COMMAND: runs the command for so many messages, then stops.
consume() {
    local out
    out=$(mktemp)
    punctual consume "$topic" --group "$group" 2>/dev/null \
        --exec "trap 'echo >>$out' EXIT; $2" &
    local consumer=$!
    until [ "$(wc -l <"$out")" -ge "$1" ]; do
        sleep 0.1
    done
    kill -INT "$consumer"
    wait "$consumer"
    rm -f "$out"
}

for customer in anna ben carla; do
    punctual send "$topic" "invoice for $customer" --key "$customer" >/dev/null
done
punctual send "$topic" "invoice for nobody" --key dora >/dev/null

echo "the mail server is down"
consume 4 'cat >/dev/null; echo "mail server is down" >&2; exit 1'
until [ "$(punctual dead list "$topic" --group "$group" -q | wc -l)" -eq 4 ]; do
    sleep 0.1
done
punctual dead list "$topic" --group "$group"

echo "it is up again; one invoice was wrong and is mended first"
wrong=$(punctual dead list "$topic" --group "$group" --key dora -q)
punctual dead redrive "$topic" --group "$group" --id "$wrong" --set-body "invoice for dora"

echo "what Ben was to get is settled otherwise"
punctual dead purge "$topic" --group "$group" --key ben

echo "the rest, ten a second"
punctual dead redrive "$topic" --group "$group" --dry-run
punctual dead redrive "$topic" --group "$group" --rate 10

consume 3 'echo "sent: $(cat)"'
if [ -z "$(punctual dead list "$topic" --group "$group" -q)" ]; then
    echo "no dead letters are left"
fi
