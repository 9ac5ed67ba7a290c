"""The share consumer of confluent-kafka (librdkafka): `confluent_share_client.py HOST:PORT HTTP`.

Members of one group accept, release and reject; what HTTP shows of the group must be the same.
"""

import json
import sys
import urllib.request
import uuid

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from expect import expect, fail, said, same, until

ADDRESS, HTTP = sys.argv[1], sys.argv[2]
TOPIC = f"share-{uuid.uuid4().hex[:8]}"
GROUP = "workers"
GROUP_PATH = f"/v1/topics/{TOPIC}/groups/{GROUP}"


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{HTTP}{path}", data=data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def prepare():
    admin = AdminClient({"bootstrap.servers": ADDRESS})
    for made in admin.create_topics([NewTopic(TOPIC, 2, 1)]).values():
        made.result(60)
    ask("PUT", GROUP_PATH, {"retry": {"ladder": ["100ms", "100ms"]}, "max_attempts": 3})


def produce(bodies):
    producer = Producer({"bootstrap.servers": ADDRESS})
    for body in bodies:
        producer.produce(TOPIC, value=body.encode(), headers=[("kept", body.encode())])
    same(producer.flush(60), 0, "records not sent")


def member(mode):
    consumer = ShareConsumer(
        {"bootstrap.servers": ADDRESS, "group.id": GROUP, "share.acknowledgement.mode": mode}
    )
    consumer.subscribe([TOPIC])
    return consumer


def poll(consumer):
    messages = []
    for message in consumer.poll(1.0):
        if message.error():
            fail(f"a record with an error: {message.error()}")
        messages.append(message)
    return messages


def commit(consumer):
    for place, error in consumer.commit_sync(60.0).items():
        expect(error is None, f"{place} could not be committed: {error}")


def explicit():
    """Each record is told apart by what is said about it; each delivery is noted."""
    bodies = ["accepted-1", "accepted-2", "released", "rejected", "once"]
    consumer = member("explicit")
    produce(bodies)
    seen = {body: [] for body in bodies}
    places = {}

    def settle():
        for message in poll(consumer):
            body = message.value().decode()
            same(message.headers()[0], ("kept", body.encode()), "a header")
            place = (message.partition(), message.offset())
            same(places.setdefault(body, place), place, f"where {body} is")
            count = message.delivery_count()
            seen[body].append(count)
            kind = AcknowledgeType.ACCEPT
            if body == "released" or (body == "once" and count == 1):
                kind = AcknowledgeType.RELEASE
            elif body == "rejected":
                kind = AcknowledgeType.REJECT
            consumer.acknowledge(message, kind)
        commit(consumer)
        return ask("GET", GROUP_PATH)["lag"] == 0 and len(seen["released"]) == 3

    until("everything to be settled", settle)
    wanted = {
        "accepted-1": [1],
        "accepted-2": [1],
        "released": [1, 2, 3],
        "rejected": [1],
        "once": [1, 2],
    }
    same(seen, wanted, "deliveries")
    # What is settled is on its way to the dead letters: they come as messages that are due at once.
    until("two dead letters", lambda: ask("GET", GROUP_PATH)["dead"] == 2)
    dead = ask("GET", f"{GROUP_PATH}/dead")["messages"]
    reasons = {letter["body"]: letter["reason"] for letter in dead}
    same(reasons, {"released": "attempts_exhausted", "rejected": "rejected"}, "dead letters")
    consumer.close()
    said("accepted, released, rejected, counted")


def implicit():
    """Two members and an HTTP consumer get everything once between them."""
    bodies = [f"shared-{number:03}" for number in range(200)]
    members = [member("implicit"), member("implicit")]
    for consumer in members:
        poll(consumer)
    produce(bodies)
    seen = []

    def settle():
        for consumer in members:
            seen.extend(message.value().decode() for message in poll(consumer))
        received = ask("POST", f"{GROUP_PATH}/receive", {"max": 5})["messages"]
        if received:
            receipts = [message["receipt"] for message in received]
            ask("POST", f"{GROUP_PATH}/ack", {"receipts": receipts})
        seen.extend(message["body"] for message in received)
        return len(seen) >= len(bodies)

    until("all records", settle)
    same(sorted(seen), bodies, "what came")
    for consumer in members:
        commit(consumer)
        consumer.close()
    until("nothing to be left", lambda: ask("GET", GROUP_PATH)["lag"] == 0)
    said("shared between two members and HTTP")


def given_back():
    """What a member has not said anything about when it closes goes to the next one."""
    produce(["left"])
    first = member("explicit")
    until("the record", lambda: poll(first))
    first.close()
    second = member("explicit")
    again = until("the record again", lambda: poll(second))
    same([message.value() for message in again], [b"left"], "what came")
    second.acknowledge(again[0])
    commit(second)
    second.close()
    said("given back")


if __name__ == "__main__":
    prepare()
    explicit()
    implicit()
    given_back()
    print("all is well", flush=True)
