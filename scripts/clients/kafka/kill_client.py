"""An idempotent producer that goes on while its broker is killed: `kill_client.py HOST:PORT`.

It sends numbers until its input is closed, some of them with a delay; then it reads the whole topic
and compares. Each number that was acknowledged must be there once, and those of a partition that
were not delayed must be there in the order they were sent in. It prints its figures.
"""

import json
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from expect import PARTITIONS, PATIENCE, PLAIN, expect, fail, until

TOPIC = "numbers"
# Records under way at a time, and the length of their values.
WINDOW = 5000
VALUE_BYTES = 200
DELAYS_MS = [200, 800, 2000]

address = sys.argv[1]
quiet = {"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 200}


class Sent:
    """What was sent and what came of it, by number."""

    def __init__(self):
        self.count = 0
        self.delayed = {}
        self.offsets = {}
        self.refused = []

    def acknowledged(self, number):
        def answer(error, record):
            if error is None:
                self.offsets[number] = (record.partition(), record.offset())
            else:
                self.refused.append((number, str(error)))

        return answer


def send(stop):
    # Nothing is given up: a broker that is down comes back.
    producer = Producer(
        {
            **quiet,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": 200,
            "message.timeout.ms": 0,
            "request.timeout.ms": 5000,
            "error_cb": lambda error: fail(f"the producer gave up: {error}") if error.fatal() else None,
        }
    )
    sent = Sent()
    while not stop.is_set():
        number = sent.count
        headers = []
        if not PLAIN and number % 4 == 3:
            delay = DELAYS_MS[number // 4 % len(DELAYS_MS)]
            headers = [("punctual-delay", str(delay))]
            sent.delayed[number] = time.time() * 1000 + delay
        value = f"{number}:{'x' * VALUE_BYTES}"
        producer.produce(TOPIC, value, partition=number % PARTITIONS, headers=headers, on_delivery=sent.acknowledged(number))
        sent.count += 1
        producer.poll(0)
        while len(producer) >= WINDOW and not stop.is_set():
            producer.poll(0.01)
    expect(producer.flush(PATIENCE) == 0, f"{len(producer)} records were never answered")
    expect(not sent.refused, f"refused: {sent.refused[:3]}")
    return sent


def read(count):
    """All records of the topic, once that many have come and then none for a while."""
    reader = Consumer({**quiet, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True})
    reader.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    records, at_end = [], set()

    def poll():
        record = reader.poll(1.0)
        if record is None:
            return False
        if record.error():
            expect(record.error().code() == KafkaError._PARTITION_EOF, f"reading: {record.error()}")
            at_end.add(record.partition())
        else:
            at_end.discard(record.partition())
            records.append((record.partition(), record.offset(), int(record.value().split(b":")[0])))
        return len(records) >= count and len(at_end) == PARTITIONS

    # The longest delay is over when nothing is missing; a duplicate would be there by then too.
    until(f"{count} records, got {len(records)}", poll)
    reader.close()
    return records


def check(sent, records):
    expect(len(sent.offsets) == sent.count, f"{sent.count - len(sent.offsets)} without an answer")
    seen = {}
    for partition, offset, number in records:
        seen.setdefault(number, []).append((partition, offset))
    lost = [number for number in range(sent.count) if number not in seen]
    twice = [number for number, places in seen.items() if len(places) > 1]
    print(
        json.dumps(
            {"sent": sent.count, "delayed": len(sent.delayed), "lost": len(lost), "duplicated": len(twice)}
        )
    )
    expect(not lost, f"lost: {lost[:10]}")
    expect(not twice, f"duplicated: {[(number, seen[number]) for number in twice[:10]]}")
    for partition in range(PARTITIONS):
        offsets = [offset for where, offset, _ in records if where == partition]
        expect(offsets == sorted(set(offsets)), f"offsets of partition {partition} do not rise")
        at_once = [number for where, _, number in records if where == partition and number not in sent.delayed]
        expect(at_once == sorted(at_once), f"partition {partition} is out of order")
    moved = [n for n, place in sent.offsets.items() if n not in sent.delayed and seen[n][0] != place]
    expect(not moved, f"acknowledged at one offset, found at another: {[(n, sent.offsets[n], seen[n]) for n in moved[:5]]}")


admin = AdminClient(quiet)
admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
sent = send(stop)
check(sent, read(sent.count))
print("all is well")
