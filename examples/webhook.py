#!/usr/bin/env python3
"""Receives pushed messages, checks who sent them, and answers: 2xx is the ack.

    make run ARGS="--config examples/push.toml"         # lets pushes reach this machine
    export PUNCTUAL_PUSH_SECRET=whsec_$(head -c 24 /dev/urandom | base64)
    punctual groups create orders hook --push http://127.0.0.1:8080/orders
    python3 examples/webhook.py 8080                    # the same secret in its environment
    punctual send orders 'order 42' --key 42 --delay 3s

A message may come more than once, always with the same webhook-id: whoever must not act twice
remembers the ids it has seen, as here.
"""

import base64
import hashlib
import hmac
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["PUNCTUAL_PUSH_SECRET"]
seen = set()


def is_genuine(secret, headers, body):
    """Whether the request was signed with our secret within the last five minutes."""
    key = secret.encode()
    if secret.startswith("whsec_"):
        key = base64.b64decode(secret.removeprefix("whsec_"))
    message_id, moment = headers["webhook-id"] or "", headers["webhook-timestamp"] or "0"
    if not moment.isdigit() or abs(time.time() - int(moment)) > 300:
        return False
    signed = f"{message_id}.{moment}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = (headers["webhook-signature"] or "").split()
    return any(hmac.compare_digest(f"v1,{expected}", one) for one in given)


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if not is_genuine(SECRET, self.headers, body):
            return self.answer(401)
        message_id = self.headers["ce-id"]
        if message_id not in seen:
            key, attempt = self.headers["ce-subject"], self.headers["ce-attempt"]
            print(f"key {key}, attempt {attempt}: {body.decode(errors='replace')}", flush=True)
            seen.add(message_id)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Endpoint)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
