#!/usr/bin/env bash
# Closes orders that are not paid in time: the reason to own a broker that keeps time.
#
# Placing an order sends a message that is due when the time to pay is over; paying takes it back, by
# the name it was given, so nothing has to be remembered.
# What is delivered has not been paid, and a consumer closes it. Shown with curl and with the command
# line, which do the same.
#
#   make run                                                      # in another terminal
#   PATH="$PWD/target/release:$PATH" examples/close-unpaid-orders.sh
#
# PUNCTUAL_SERVER names another server, TIME_TO_PAY another time (2s here, 30m in a shop).
set -euo pipefail

server=${PUNCTUAL_SERVER:-http://127.0.0.1:7070}
time_to_pay=${TIME_TO_PAY:-2s}
topic=unpaid-orders-$$
closed=$(mktemp)
trap 'punctual topics delete "$topic" >/dev/null; rm -f "$closed"' EXIT

# place ORDER: has the order closed when the time is over. Sending it twice does no harm.
place() {
    punctual send "$topic" "{\"order\":$1}" --id "close-$1" --key "$1" --delay "$time_to_pay" >/dev/null
}

# The same without the command line.
place_with_curl() {
    curl -sS --fail-with-body "$server/v1/topics/$topic/messages" \
        -H 'content-type: application/json' \
        -d "{\"body\":{\"order\":$1},\"id\":\"close-$1\",\"key\":\"$1\",\"delay\":\"$time_to_pay\"}" >/dev/null
}

# pay ORDER: the answer to a cancel is definite, so nobody closes an order that was paid.
pay() {
    if punctual cancel "close-$1" --topic "$topic" >/dev/null; then
        echo "order $1 is paid"
    else
        echo "order $1 is paid too late"
    fi
}

place 1
place_with_curl 2
place 3
echo "orders 1, 2 and 3 are placed, to be paid within $time_to_pay"
pay 2

# --exec runs once for each message that comes due, with its body on standard input; the message is
# acked when it ends well. Here the consumer ends with the last order; yours would go on.
punctual consume "$topic" --group closer \
    --exec "echo \"order \$PUNCTUAL_KEY is closed\"; cat >/dev/null" >"$closed" &
consumer=$!
until [ "$(wc -l <"$closed")" -ge 2 ]; do
    sleep 0.1
done
kill -INT "$consumer"
wait "$consumer"
sort "$closed"

# Too late: both have been delivered.
pay 1 2>/dev/null
pay 3 2>/dev/null
