"""confluent-kafka (librdkafka) against a broker: `confluent_client.py HOST:PORT`."""

import sys
import threading
import time
import uuid

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    OFFSET_BEGINNING,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

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
admin = AdminClient({"bootstrap.servers": address})


def done(futures):
    """The results of calls of the administrator, by name."""
    return {name: future.result(PATIENCE) for name, future in futures.items()}


def refused(futures, code):
    for future in futures.values():
        try:
            future.result(PATIENCE)
        except KafkaException as error:
            same(error.args[0].code(), code, "the refusal")
            return
    fail(f"not refused with {code}")


def topic(partitions=PARTITIONS):
    name = f"confluent-{uuid.uuid4().hex[:8]}"
    done(admin.create_topics([NewTopic(name, partitions, 1)]))
    # Metadata follow within moments where a cluster has to agree.
    until("the topic", lambda: name in admin.list_topics(timeout=PATIENCE).topics)
    return name


def producer(**settings):
    settings = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": address, "linger.ms": 5, **settings})


def consumer(group, **settings):
    settings = {key.replace("_", "."): value for key, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 15000,
            "heartbeat.interval.ms": 500,
            **settings,
        }
    )


def take(reader, count):
    """That many records, in the order they come."""
    records = []

    def poll():
        record = reader.poll(1.0)
        if record is not None:
            expect(record.error() is None, f"a consumer was told {record.error()}")
            records.append(record)
        return len(records) >= count

    until(f"{count} records", poll)
    return records


def read(name, count, partitions=PARTITIONS):
    """Reads a topic from its beginning, without a group's offsets."""
    reader = consumer(f"reader-{uuid.uuid4().hex[:8]}")
    reader.assign([TopicPartition(name, p, OFFSET_BEGINNING) for p in range(partitions)])
    records = take(reader, count)
    reader.close()
    return records


def administer():
    name = topic()
    same(len(admin.list_topics(name, timeout=PATIENCE).topics[name].partitions), PARTITIONS, "partitions")
    refused(admin.create_topics([NewTopic(name, 1, 1)]), KafkaError.TOPIC_ALREADY_EXISTS)
    refused(admin.create_topics([NewTopic("not/a name", 1, 1)]), KafkaError.TOPIC_EXCEPTION)
    refused(admin.delete_topics([f"absent-{name}"]), KafkaError.UNKNOWN_TOPIC_OR_PART)
    done(admin.create_partitions([NewPartitions(name, PARTITIONS + 1)]))
    until(
        "the new partition",
        lambda: len(admin.list_topics(name, timeout=PATIENCE).topics[name].partitions) == PARTITIONS + 1,
    )
    resource = ConfigResource(ResourceType.TOPIC, name)
    settings = list(done(admin.describe_configs([resource])).values())[0]
    for key in ["cleanup.policy", "retention.ms", "max.message.bytes"]:
        expect(key in settings, f"the settings of a topic lack {key}: {sorted(settings)}")
    change = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])]))
    settings = list(done(admin.describe_configs([resource])).values())[0]
    same(settings["retention.ms"].value, "3600000", "retention.ms")
    cluster = admin.describe_cluster().result(PATIENCE)
    same(len(cluster.nodes), 1, "nodes")
    expect(cluster.cluster_id, "the cluster has no id")
    done(admin.delete_topics([name]))
    until("the topic to be gone", lambda: name not in admin.list_topics(timeout=PATIENCE).topics)
    said("topics are made, changed, described and deleted")


def compress():
    for codec in CODECS:
        name, count = topic(1), 200
        sender = producer(compression_type=codec)
        begun = now_ms()
        for number in range(count):
            value = f"{number}:{'x' * 300}"
            sender.produce(name, value, key=str(number), headers=HEADERS, partition=0)
        same(sender.flush(PATIENCE), 0, f"{codec}: records not acknowledged")
        records = read(name, count, 1)
        for number, record in enumerate(records):
            same(record.key(), str(number).encode(), f"{codec}: key")
            same(record.value(), f"{number}:{'x' * 300}".encode(), f"{codec}: value")
            same(record.headers(), HEADERS, f"{codec}: headers")
            same(record.offset(), number, f"{codec}: offset")
            stamped = record.timestamp()[1]
            expect(begun - 1 <= stamped <= now_ms() + 1, f"{codec}: stamped {stamped}")
    said(f"{', '.join(CODECS)}: keys, values, headers and times come back byte for byte")


def unusual():
    name = topic(1)
    sender = producer()
    stamp = int(now_ms()) - 86_400_000
    sent = [(b"k", None), (None, b"v"), (b"", b""), (None, None), (bytes(range(256)), b"\0" * 900_000)]
    for key, value in sent:
        sender.produce(name, value, key=key, partition=0, timestamp=stamp)
    same(sender.flush(PATIENCE), 0, "records not acknowledged")
    records = read(name, len(sent), 1)
    same([(record.key(), record.value()) for record in records], sent, "keys and values")
    same({record.timestamp()[1] for record in records}, {stamp}, "times of the producer")
    reader = consumer("seeker")
    found = reader.offsets_for_times([TopicPartition(name, 0, stamp)], timeout=PATIENCE)
    same(found[0].offset, 0, "the offset of a time")
    same(reader.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE), (0, len(sent)), "bounds")
    reader.close()
    said("nulls, empty and large values, times of the producer and offsets of times")


def idempotent():
    name, count = topic(), 5001
    sender = producer(enable_idempotence=True, acks="all", batch_num_messages=50)
    for number in range(count):
        sender.produce(name, str(number), partition=number % PARTITIONS)
        sender.poll(0)
    same(sender.flush(PATIENCE), 0, "records not acknowledged")
    for acks in ["0", "1"]:
        other = producer(acks=acks)
        for number in range(PARTITIONS):
            other.produce(name, str(count + number), partition=number)
        same(other.flush(PATIENCE), 0, f"acks={acks}: records not sent")
        count += PARTITIONS
    seen = {}
    for record in read(name, count):
        seen.setdefault(record.partition(), []).append(int(record.value()))
    for partition, numbers in seen.items():
        same(numbers, list(range(partition, count, PARTITIONS)), f"the order of partition {partition}")
    said("an idempotent producer and acks of 0 and 1: each record once, in order")


def delay():
    if PLAIN:
        return
    name, delayed = topic(1), Delayed()
    for settings in [{"enable_idempotence": True}, {"compression_type": "zstd"}, {}]:
        sender = producer(linger_ms=50, **settings)
        bodies = [f"{uuid.uuid4()}" for _ in range(3)]
        answered = {}

        def acknowledge(error, record, answered=answered):
            expect(error is None, f"refused: {error}")
            answered[record.value().decode()] = record.offset()

        for body in bodies:
            delayed.sent(body, DELAY_MS)
            headers = [("punctual-delay", str(DELAY_MS)), ("kept", b"as it was")]
            sender.produce(name, body, headers=headers, partition=0, on_delivery=acknowledge)
        sender.produce(name, "at once", partition=0, on_delivery=acknowledge)
        same(sender.flush(PATIENCE), 0, "records not acknowledged")
        for body in bodies:
            delayed.acknowledged(body, 0, answered[body])
        same(sorted(answered.values()), [answered[bodies[0]] + n for n in range(4)], "offsets")
    offsets = []
    # The undelayed ones come first: the others are not due when they are written.
    for record in read(name, 12, 1):
        body = record.value().decode()
        offsets.append(record.offset())
        if body != "at once":
            delayed.arrived(body, 0, record.offset(), record.headers())
    same(offsets, sorted(set(offsets)), "offsets rise")
    refuse_bad_delay(name)
    said("delayed records come, not early, at new offsets, with their headers")


def refuse_bad_delay(name):
    sender, answers = producer(), []
    sender.produce(name, "x", headers={"punctual-delay": "soon"}, partition=0, on_delivery=lambda e, _: answers.append(e))
    sender.flush(PATIENCE)
    expect(answers and answers[0] is not None, "a delay that is none was accepted")
    same(answers[0].code(), KafkaError.INVALID_RECORD, "the refusal of a bad delay")


class Member:
    """A member of a group, which notes its partitions."""

    def __init__(self, name, group, **settings):
        self.partitions = set()
        self.bodies = []
        self.reader = consumer(group, **settings)
        self.reader.subscribe([name], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked)

    def assigned(self, reader, partitions):
        self.partitions |= {p.partition for p in partitions}

    def revoked(self, reader, partitions):
        self.partitions -= {p.partition for p in partitions}

    def poll(self):
        record = self.reader.poll(0.1)
        if record is not None:
            expect(record.error() is None, f"a member was told {record.error()}")
            self.bodies.append(record.value().decode())


def poll_until(what, members, condition):
    def ask():
        for one in members:
            one.poll()
        return condition()

    until(what, ask)


def rebalance(strategy):
    name, group = topic(), f"group-{uuid.uuid4().hex[:8]}"
    settings = {"partition_assignment_strategy": strategy}
    everything = set(range(PARTITIONS))
    first = Member(name, group, **settings)
    poll_until("the first member", [first], lambda: first.partitions == everything)
    second = Member(name, group, **settings)
    both = [first, second]
    poll_until(
        "both members to share",
        both,
        lambda: first.partitions and second.partitions and first.partitions | second.partitions == everything
        and not first.partitions & second.partitions,
    )
    second.reader.close()
    poll_until("the partitions of the one that left", [first], lambda: first.partitions == everything)
    other = member(address, name, group)
    poll_until("another process", [first], lambda: first.partitions != everything)
    holds = []
    waiting = threading.Thread(target=lambda: holds.append(holds_partitions(other)), daemon=True)
    waiting.start()
    poll_until("the other process to hold some", [first], lambda: not waiting.is_alive())
    other.kill()
    other.wait()
    poll_until("the partitions of the one that crashed", [first], lambda: first.partitions == everything)
    sender = producer()
    for number in range(30):
        sender.produce(name, str(number), partition=number % PARTITIONS)
    same(sender.flush(PATIENCE), 0, "records not acknowledged")
    poll_until("all records", [first], lambda: len(first.bodies) >= 30)
    same(sorted(map(int, first.bodies)), list(range(30)), "what the last member got")
    first.reader.close()
    said(f"{strategy}: members join, leave and crash")


def resume():
    name, group = topic(), f"group-{uuid.uuid4().hex[:8]}"
    sender = producer()
    for number in range(60):
        sender.produce(name, str(number), partition=number % PARTITIONS)
    same(sender.flush(PATIENCE), 0, "records not acknowledged")
    reader = consumer(group)
    reader.subscribe([name])
    take(reader, 60)
    wanted = [TopicPartition(name, p, 7, f"note {p}") for p in range(PARTITIONS)]
    committed = reader.commit(offsets=wanted, asynchronous=False)
    expect(all(one.error is None for one in committed), f"commit: {committed}")
    describe(group, 1)
    reader.close()
    reader = consumer(group)
    reader.subscribe([name])
    records = take(reader, 60 - 7 * PARTITIONS)
    same(sorted(int(r.value()) for r in records), list(range(7 * PARTITIONS, 60)), "what is resumed")
    found = reader.committed([TopicPartition(name, p) for p in range(PARTITIONS)], timeout=PATIENCE)
    same([(one.offset, one.metadata) for one in found], [(7, f"note {p}") for p in range(PARTITIONS)], "committed")
    reader.close()
    administer_group(name, group)
    said("commits are kept with their notes, and reading resumes there")


def describe(group, members):
    found = list(done(admin.describe_consumer_groups([group])).values())[0]
    same(len(found.members), members, "members of the group")
    same(found.state.name, "STABLE", "state of the group")


def administer_group(name, group):
    listed = admin.list_consumer_groups().result(PATIENCE)
    expect(group in [one.group_id for one in listed.valid], f"{group} is not listed")
    asked = ConsumerGroupTopicPartitions(group)
    offsets = list(done(admin.list_consumer_group_offsets([asked])).values())[0]
    same(sorted(one.offset for one in offsets.topic_partitions), [7] * PARTITIONS, "offsets of the group")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 3)])
    done(admin.alter_consumer_group_offsets([moved]))
    offsets = list(done(admin.list_consumer_group_offsets([asked])).values())[0]
    same(sorted(one.offset for one in offsets.topic_partitions), [3, 7, 7], "offsets after a change")
    # A member that left a moment ago may still be counted.
    until("the group to be deleted", lambda: delete(group))
    listed = admin.list_consumer_groups().result(PATIENCE)
    expect(group not in [one.group_id for one in listed.valid], f"{group} is still listed")


def delete(group):
    try:
        done(admin.delete_consumer_groups([group]))
        return True
    except KafkaException as error:
        same(error.args[0].code(), KafkaError.NON_EMPTY_GROUP, "the refusal to delete a group")
        time.sleep(0.2)
        return False


def be_member(name, group):
    """The other process: joins, says what it holds, and stays until it is killed."""
    one = Member(name, group)
    told = None
    while True:
        one.poll()
        if one.partitions != told:
            told = set(one.partitions)
            print(f"assigned {len(told)}", flush=True)


if len(sys.argv) > 2:
    be_member(*sys.argv[3:])
for step in [administer, compress, unusual, idempotent, delay, resume]:
    step()
rebalance("range")
print("all is well")
