"""Fills topics with every shape of batch: `write_client.py HOST:PORT`.

Plain, compressed by every codec, thinned (some records delayed), empty (all records delayed), and
those that are written when delayed records are due. Ends when everything has been delivered.
"""

import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from expect import CODECS, PATIENCE, expect, until

address = sys.argv[1]
COUNT = 120
# How many of the records in a row are delayed, of each three.
SHAPES = [0, 1, 3]

admin = AdminClient({"bootstrap.servers": address})
known = admin.list_topics(timeout=PATIENCE).topics
for codec in CODECS:
    name = f"shapes-{codec}"
    if name not in known:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE)
    reader = Consumer({"bootstrap.servers": address, "group.id": "none", "auto.offset.reset": "earliest"})
    _, before = reader.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE)
    sender = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 100, "enable.idempotence": True})
    delayed = 0
    for shape in SHAPES:
        for number in range(COUNT):
            headers = [("kept", b"as it was")]
            if number % 3 < shape:
                headers.append(("punctual-delay", "700ms"))
                delayed += 1
            sender.produce(name, f"{number}:{'x' * 400}", key=str(number), partition=0, headers=headers)
        expect(sender.flush(PATIENCE) == 0, f"{codec}: records not acknowledged")
    # Each delayed record takes an offset when it is sent and another when it is due.
    wanted = before + len(SHAPES) * COUNT + delayed
    until(
        f"{codec}: offset {wanted}",
        lambda: reader.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE)[1] >= wanted,
    )
    reader.close()
print("all is well")
