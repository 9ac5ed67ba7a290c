"""Makes the topics and groups that schemathesis is told of."""

import json
import os
import sys
import urllib.request


def call(method, url, value=None):
    headers = {"content-type": "application/json"}
    if os.environ.get("PUNCTUAL_TOKEN"):
        headers["authorization"] = "Bearer " + os.environ["PUNCTUAL_TOKEN"]
    data = json.dumps(value or {}).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


base = sys.argv[1] + "/v1/topics/"
for topic in ("orders", "letters"):
    call("PUT", base + topic, {"partitions": 4})
    for group in ("billing", "shipping"):
        call("PUT", f"{base}{topic}/groups/{group}")
    batch = [{"body": f"message {number}", "delay": "1h", "key": str(number)} for number in range(20)]
    call("POST", f"{base}{topic}/messages", {"messages": batch + [{"body": "now"}] * 20})
