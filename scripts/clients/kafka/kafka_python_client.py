"""kafka-python against a broker: `kafka_python_client.py HOST:PORT`."""

import sys
import threading
import uuid

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidTopicError, KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.structs import OffsetAndMetadata

from expect import (
    CODECS,
    DELAY_MS,
    HEADERS,
    PARTITIONS,
    PATIENCE,
    PLAIN,
    Delayed,
    expect,
    fail,
    holds_partitions,
    member,
    now_ms,
    said,
    same,
    until,
)

address = sys.argv[1]
# This client sends no header without a value.
VALUED = [(name, value) for name, value in HEADERS if value is not None]
admin = KafkaAdminClient(bootstrap_servers=address)


def topic(partitions=PARTITIONS):
    name = f"kafka-python-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, partitions, 1)])
    until("the topic", lambda: name in admin.list_topics())
    return name


def producer(**settings):
    return KafkaProducer(bootstrap_servers=address, linger_ms=5, **settings)


def consumer(group=None, **settings):
    return KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=15000,
        heartbeat_interval_ms=500,
        **settings,
    )


def send(sender, records):
    """Sends them and waits for the answers."""
    futures = [sender.send(**record) for record in records]
    sender.flush(PATIENCE)
    return [future.get(PATIENCE) for future in futures]


def take(reader, count):
    records = []

    def poll():
        for batch in reader.poll(1000).values():
            records.extend(batch)
        return len(records) >= count

    until(f"{count} records", poll)
    return records


def read(name, count, partitions=PARTITIONS):
    reader = consumer()
    reader.assign([TopicPartition(name, p) for p in range(partitions)])
    reader.seek_to_beginning()
    records = take(reader, count)
    reader.close()
    return records


def refused(kind, call):
    try:
        call()
    except KafkaError as error:
        expect(isinstance(error, kind), f"refused with {error!r}, not {kind.__name__}")
        return
    fail(f"not refused with {kind.__name__}")


def partitions_of(name):
    return len(admin.describe_topics([name])[0]["partitions"])


def setting(name, key):
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    return admin.describe_configs([resource], config_filter="all")["topic"][name][key]


def administer():
    name = topic()
    same(partitions_of(name), PARTITIONS, "partitions")
    refused(TopicAlreadyExistsError, lambda: admin.create_topics([NewTopic(name, 1, 1)]))
    refused(InvalidTopicError, lambda: admin.create_topics([NewTopic("not/a name", 1, 1)]))
    refused(UnknownTopicOrPartitionError, lambda: admin.delete_topics([f"absent-{name}"]))
    admin.create_partitions({name: NewPartitions(PARTITIONS + 1)})
    until("the new partition", lambda: partitions_of(name) == PARTITIONS + 1)
    expect(setting(name, "cleanup.policy") is not None, "cleanup.policy is not described")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "3600000"})])
    expect("3600000" in str(setting(name, "retention.ms")), "retention.ms was not changed")
    expect(admin.describe_cluster()["cluster_id"], "the cluster has no id")
    admin.delete_topics([name])
    until("the topic to be gone", lambda: name not in admin.list_topics())
    said("topics are made, changed, described and deleted")


def compress():
    for codec in CODECS:
        name, count = topic(1), 100
        sender = producer(compression_type=None if codec == "none" else codec)
        begun = now_ms()
        values = [f"{number}:{'x' * 300}".encode() for number in range(count)]
        send(
            sender,
            [
                {"topic": name, "key": str(n).encode(), "value": value, "headers": VALUED, "partition": 0}
                for n, value in enumerate(values)
            ],
        )
        sender.close()
        for number, record in enumerate(read(name, count, 1)):
            same(record.key, str(number).encode(), f"{codec}: key")
            same(record.value, values[number], f"{codec}: value")
            same(list(record.headers), VALUED, f"{codec}: headers")
            same(record.offset, number, f"{codec}: offset")
            expect(begun - 1 <= record.timestamp <= now_ms() + 1, f"{codec}: stamped {record.timestamp}")
    said(f"{', '.join(CODECS)}: keys, values, headers and times come back byte for byte")


def idempotent():
    name, count = topic(), 3000
    sender = producer(enable_idempotence=True, acks="all", batch_size=2000)
    send(sender, [{"topic": name, "value": str(n).encode(), "partition": n % PARTITIONS} for n in range(count)])
    sender.close()
    for acks in [0, 1]:
        other = producer(acks=acks, enable_idempotence=False)
        send(other, [{"topic": name, "value": str(count + p).encode(), "partition": p} for p in range(PARTITIONS)])
        other.close()
        count += PARTITIONS
    seen = {}
    for record in read(name, count):
        seen.setdefault(record.partition, []).append(int(record.value))
    for partition, numbers in seen.items():
        same(numbers, list(range(partition, count, PARTITIONS)), f"the order of partition {partition}")
    said("an idempotent producer and acks of 0 and 1: each record once, in order")


def delay():
    if PLAIN:
        return
    name, delayed = topic(1), Delayed()
    headers = [("punctual-delay", str(DELAY_MS).encode()), ("kept", b"as it was")]
    for settings in [{}, {"compression_type": "lz4"}, {"enable_idempotence": False, "acks": 1}]:
        sender, bodies = producer(**settings), [str(uuid.uuid4()) for _ in range(3)]
        records = []
        for body in bodies:
            delayed.sent(body, DELAY_MS)
            records.append({"topic": name, "value": body.encode(), "headers": headers, "partition": 0})
        records.append({"topic": name, "value": b"at once", "partition": 0})
        answers = [answer.offset for answer in send(sender, records)]
        same(answers, [answers[0] + n for n in range(4)], "offsets")
        for body, offset in zip(bodies, answers):
            delayed.acknowledged(body, 0, offset)
        sender.close()
    for record in read(name, 12, 1):
        if record.value != b"at once":
            delayed.arrived(record.value.decode(), 0, record.offset, list(record.headers))
    said("delayed records come, not early, at new offsets, with their headers")


class Member:
    def __init__(self, name, group):
        self.bodies = []
        self.reader = consumer(group)
        self.reader.subscribe([name])

    def poll(self):
        for batch in self.reader.poll(100).values():
            self.bodies.extend(record.value.decode() for record in batch)

    @property
    def partitions(self):
        return {one.partition for one in self.reader.assignment()}


def poll_until(what, members, condition):
    """Each member is polled by a thread of its own: joining waits for the others."""
    stop = threading.Event()

    def follow(one):
        while not stop.is_set():
            one.poll()

    threads = [threading.Thread(target=follow, args=(one,), daemon=True) for one in members]
    for thread in threads:
        thread.start()
    until(what, lambda: stop.wait(0.05) or condition())
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)


def rebalance():
    name, group = topic(), f"group-{uuid.uuid4().hex[:8]}"
    everything = set(range(PARTITIONS))
    first = Member(name, group)
    poll_until("the first member", [first], lambda: first.partitions == everything)
    second = Member(name, group)
    shared = lambda: first.partitions and second.partitions and first.partitions | second.partitions == everything
    poll_until("both members to share", [first, second], shared)
    second.reader.close()
    poll_until("the partitions of the one that left", [first], lambda: first.partitions == everything)
    other = member(address, name, group)
    waiting = threading.Thread(target=holds_partitions, args=(other,), daemon=True)
    waiting.start()
    poll_until("the other process to hold some", [first], lambda: not waiting.is_alive())
    other.kill()
    other.wait()
    poll_until("the partitions of the one that crashed", [first], lambda: first.partitions == everything)
    sender = producer()
    send(sender, [{"topic": name, "value": str(n).encode(), "partition": n % PARTITIONS} for n in range(30)])
    poll_until("all records", [first], lambda: len(first.bodies) >= 30)
    same(sorted(map(int, first.bodies)), list(range(30)), "what the last member got")
    first.reader.close()
    said("members join, leave and crash")


def resume():
    name, group = topic(), f"group-{uuid.uuid4().hex[:8]}"
    sender = producer()
    send(sender, [{"topic": name, "value": str(n).encode(), "partition": n % PARTITIONS} for n in range(60)])
    reader = consumer(group)
    reader.subscribe([name])
    take(reader, 60)
    reader.commit({TopicPartition(name, p): OffsetAndMetadata(7, f"note {p}", -1) for p in range(PARTITIONS)})
    found = admin.describe_groups([group])[group]
    same(len(found["members"]), 1, "members of the group")
    reader.close()
    reader = consumer(group)
    reader.subscribe([name])
    records = take(reader, 60 - 7 * PARTITIONS)
    same(sorted(int(r.value) for r in records), list(range(7 * PARTITIONS, 60)), "what is resumed")
    same(reader.committed(TopicPartition(name, 0)), 7, "committed")
    reader.close()
    expect(group in str(admin.list_groups()), f"{group} is not listed")
    offsets = admin.list_group_offsets([group])
    same([one.offset for one in offsets[group].values()], [7] * PARTITIONS, "offsets of the group")
    admin.delete_groups([group])
    expect(group not in str(admin.list_groups()), f"{group} is still listed")
    said("commits are kept, and reading resumes there")


def be_member(name, group):
    one, told = Member(name, group), None
    while True:
        one.poll()
        if len(one.partitions) != told:
            told = len(one.partitions)
            print(f"assigned {told}", flush=True)


if len(sys.argv) > 2:
    be_member(*sys.argv[3:])
for step in [administer, compress, idempotent, delay, resume, rebalance]:
    step()
print("all is well")
