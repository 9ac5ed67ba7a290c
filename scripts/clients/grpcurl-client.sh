#!/usr/bin/env bash
# The contract called by grpcurl, which learns it by reflection: PROGRAM ADDRESS.
set -euo pipefail
call() { "$1" -plaintext -max-time 60 "${@:2}"; }
grpcurl="$1" address="$2"

services="$(call "$grpcurl" "$address" list)"
for service in punctual.v1.MessageService punctual.v1.ConsumerService punctual.v1.TransactionService \
    punctual.v1.AdminService grpc.health.v1.Health; do
    grep -qx "$service" <<<"$services" || { echo "$service is not listed: $services" >&2; exit 1; }
done
call "$grpcurl" "$address" describe punctual.v1.NewMessage | grep -q delay_level
call "$grpcurl" "$address" describe punctual.v1.MessageService.SendStream | grep -q 'stream'
call "$grpcurl" "$address" grpc.health.v1.Health/Check | grep -q SERVING

sent="$(call "$grpcurl" -d '{"topic":"go","messages":[{"body":"aGVsbG8="}]}' "$address" \
    punctual.v1.MessageService/Send)"
grep -q STATE_SCHEDULED <<<"$sent"
received="$(call "$grpcurl" -d '{"topic":"go","group":"g","wait":"20s"}' "$address" \
    punctual.v1.ConsumerService/Receive)"
grep -q '"body": "aGVsbG8="' <<<"$received"
answers="$(call "$grpcurl" -d '{"sequence":1,"topic":"go","messages":[{"delay":"60s"}]}
    {"sequence":2,"topic":"go","messages":[]}' "$address" punctual.v1.MessageService/SendStream)"
grep -q empty_batch <<<"$answers"
if refused="$(call "$grpcurl" -v -d '{"name":{"id":"nothing"}}' "$address" \
    punctual.v1.MessageService/Get 2>&1)"; then
    echo "a missing message was found: $refused" >&2
    exit 1
fi
grep -q 'Code: NotFound' <<<"$refused"
grep -q 'punctual-code: not_found' <<<"$refused"
echo "grpcurl: all is well"
