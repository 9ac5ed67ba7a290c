"""Sends, looks, receives and acknowledges by a client that was generated from the document."""

import json
import sys

from punctual_http import Client
from punctual_http.api.consuming import ack, receive
from punctual_http.api.messages import get_message, schedule
from punctual_http.models import NewMessage, Receipts, Receive

TOPIC, GROUP = "generated", "client"
ORDER = {"order": 42}


def expect(truth, what):
    if not truth:
        sys.exit(what)


with Client(base_url=sys.argv[1], raise_on_unexpected_status=True) as client:
    message = NewMessage.from_dict({"body": ORDER, "key": "k", "headers": {"kind": "test"}, "delay": "50ms"})
    sent = schedule.sync(TOPIC, client=client, body=message)
    expect(sent.topic == TOPIC and sent.state in ("scheduled", "delivered"), f"sent: {sent}")

    known = get_message.sync(sent.id, client=client)
    expect(known.id == sent.id and known.key == "k" and json.loads(known.body) == ORDER, f"known: {known}")

    received = receive.sync(TOPIC, GROUP, client=client, body=Receive(max_=10, wait="30s", lease="1m"))
    (one,) = received.messages
    expect(one.id == sent.id and one.attempt == 1 and one.due == sent.due, f"received: {one}")

    done = ack.sync(TOPIC, GROUP, client=client, body=Receipts(receipts=[one.receipt]))
    expect([result.result for result in done.results] == ["acked"], f"acknowledged: {done}")

    again = ack.sync(TOPIC, GROUP, client=client, body=Receipts(receipts=[one.receipt]))
    expect([result.result for result in again.results] == ["not_held"], f"acknowledged twice: {again}")

    missing = get_message.sync("nothing", client=client)
    expect(missing.code == "not_found" and missing.status == 404, f"missing: {missing}")
print("sent, looked at, received and acknowledged by a generated client")
