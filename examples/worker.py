#!/usr/bin/env python3
"""A consumer in plain Python: receives, works, acks; gives back what fails; stops in order.

    make run                                     # in another terminal
    python3 examples/worker.py jobs workers      # topic and group, both made if missing
    punctual send jobs 'sleep 90'                # longer than the lease, which is extended
    punctual send jobs 'fail'                    # comes again, by the ladder of the group
    punctual send jobs 'nonsense'                # rejected: a dead letter at once

PUNCTUAL_SERVER names another server. Ctrl-C or SIGTERM lets the message at hand be finished.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.request

SERVER = os.environ.get("PUNCTUAL_SERVER", "http://127.0.0.1:7070")
LEASE_SECONDS = 30


class Rejected(Exception):
    """The message can never be handled."""


def handle(message):
    """The work. Whatever it raises gives the message back."""
    verb, _, rest = message["body"].partition(" ")
    if verb == "sleep":
        time.sleep(float(rest))
    elif verb == "fail":
        raise RuntimeError(f"attempt {message['attempt']} failed")
    elif verb != "print":
        raise Rejected("no such job")
    print("done:", message["body"], flush=True)


class Group:
    def __init__(self, topic, group):
        self.url = f"{SERVER}/v1/topics/{topic}/groups/{group}"

    def post(self, verb, **fields):
        head = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{verb}", json.dumps(fields).encode(), head)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def work(self, message):
        receipts, done = [message["receipt"]], threading.Event()

        def keep():
            while not done.wait(LEASE_SECONDS / 3):
                self.post("extend", receipts=receipts, lease=f"{LEASE_SECONDS}s")

        threading.Thread(target=keep, daemon=True).start()
        try:
            handle(message)
        except Exception as error:
            reject = isinstance(error, Rejected)
            self.post("nack", receipts=receipts, reject=reject, error=str(error))
        else:
            self.post("ack", receipts=receipts)
        finally:
            done.set()


if __name__ == "__main__":
    stopping = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopping.set())
    group = Group(*sys.argv[1:])
    while not stopping.is_set():
        # One at a time: what would wait behind a slow one is better with another worker.
        answer = group.post("receive", max=1, wait="2s", lease=f"{LEASE_SECONDS}s")
        for message in answer["messages"]:
            group.work(message)
