// Apache Kafka's own client against a broker: `java -cp 'jars/*:classes' KafkaClient HOST:PORT`.
// With PLAIN set the broker is one that does not delay.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class KafkaClient {
    static final int PARTITIONS = 3;
    static final long PATIENCE_MS = 60_000;
    // Longer than a busy machine takes to send what must be written before it is due.
    static final long DELAY_MS = 5000;
    static final boolean PLAIN = System.getenv("PLAIN") != null;
    static String address;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        if (arguments.length > 1) {
            beMember(arguments[2], arguments[3]);
        }
        try {
            admin = Admin.create(Map.of("bootstrap.servers", address));
            administer();
            compress();
            idempotent();
            delay();
            resume();
            rebalance("range", "org.apache.kafka.clients.consumer.RangeAssignor");
            rebalance("cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            deleteRecords();
            noTransactions();
            admin.close();
            System.out.println("all is well");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.err.println("FAILED: " + error);
            System.exit(1);
        }
    }

    static void expect(boolean condition, String reason) {
        if (!condition) throw new IllegalStateException(reason);
    }

    static void same(Object found, Object wanted, String what) {
        expect(Objects.equals(found, wanted), what + ": found " + shorten(found) + ", wanted " + shorten(wanted));
    }

    static String shorten(Object value) {
        String text = String.valueOf(value);
        return text.length() < 300 ? text : text.substring(0, 300) + "...";
    }

    static void until(String what, BooleanSupplier ask) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!ask.getAsBoolean()) {
            expect(System.currentTimeMillis() < end, "waited too long for " + what);
            Thread.sleep(20);
        }
    }

    static <T> T get(Future<T> future) {
        try {
            return future.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException error) {
            throw new RuntimeException(error.getCause());
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void refused(Class<?> kind, Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            expect(kind.isInstance(error.getCause()), "refused with " + error.getCause() + ", not " + kind);
            return;
        }
        throw new IllegalStateException("not refused with " + kind);
    }

    static String name(String kind) {
        return "java-" + kind + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    static String topic(int partitions) throws Exception {
        String made = name("topic");
        get(admin.createTopics(List.of(new NewTopic(made, Optional.of(partitions), Optional.empty()))).all());
        until("the topic", () -> get(admin.listTopics().names()).contains(made));
        return made;
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", address, "linger.ms", 5));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", address, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "session.timeout.ms", 15_000, "heartbeat.interval.ms", 500));
        if (group != null) all.put("group.id", group);
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<RecordMetadata> send(Map<String, Object> settings, List<ProducerRecord<byte[], byte[]>> records) {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<RecordMetadata>> futures = records.stream().map(producer::send).collect(Collectors.toList());
            producer.flush();
            return futures.stream().map(KafkaClient::get).collect(Collectors.toList());
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> reader, int count) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        until(count + " records", () -> {
            reader.poll(Duration.ofMillis(500)).forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String topic, int partitions, int count) throws Exception {
        try (KafkaConsumer<byte[], byte[]> reader = consumer(null, Map.of())) {
            reader.assign(IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList()));
            reader.seekToBeginning(reader.assignment());
            return take(reader, count);
        }
    }

    static String text(byte[] bytes) {
        return new String(bytes, UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, String value) {
        return new ProducerRecord<>(topic, partition, null, value.getBytes(UTF_8));
    }

    static String setting(String topic, String key) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry entry = get(admin.describeConfigs(List.of(resource)).all()).get(resource).get(key);
        expect(entry != null, "the settings of a topic lack " + key);
        return entry.value();
    }

    static int partitions(String topic) {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size();
    }

    static void administer() throws Exception {
        String made = topic(PARTITIONS);
        same(partitions(made), PARTITIONS, "partitions");
        var described = get(admin.describeTopics(List.of(made)).allTopicNames()).get(made);
        var byId = get(admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(described.topicId()))).allTopicIds());
        same(byId.get(described.topicId()).name(), made, "the topic of an id");
        refused(TopicExistsException.class, () -> get(admin.createTopics(List.of(new NewTopic(made, 1, (short) 1))).all()));
        refused(InvalidTopicException.class, () -> get(admin.createTopics(List.of(new NewTopic("not/a name", 1, (short) 1))).all()));
        refused(UnknownTopicOrPartitionException.class, () -> get(admin.deleteTopics(List.of("absent-" + made)).all()));
        get(admin.createPartitions(Map.of(made, NewPartitions.increaseTo(PARTITIONS + 1))).all());
        until("the new partition", () -> partitions(made) == PARTITIONS + 1);
        refused(InvalidPartitionsException.class, () -> get(admin.createPartitions(Map.of(made, NewPartitions.increaseTo(1))).all()));
        for (String key : List.of("cleanup.policy", "retention.ms", "max.message.bytes")) setting(made, key);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, made);
        var change = new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
        get(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
        until("retention.ms", () -> setting(made, "retention.ms").equals("3600000"));
        same(get(admin.describeCluster().nodes()).size(), 1, "nodes");
        expect(get(admin.describeCluster().clusterId()) != null, "the cluster has no id");
        get(admin.deleteTopics(List.of(made)).all());
        until("the topic to be gone", () -> !get(admin.listTopics().names()).contains(made));
        System.out.println("  topics are made, changed, described and deleted");
    }

    static void compress() throws Exception {
        byte[] every = new byte[256];
        for (int value = 0; value < 256; value++) every[value] = (byte) value;
        List<Header> headers = List.of(new RecordHeader("plain", "value".getBytes(UTF_8)),
            new RecordHeader("twice", "first".getBytes(UTF_8)), new RecordHeader("twice", "second".getBytes(UTF_8)),
            new RecordHeader("nothing", (byte[]) null), new RecordHeader("empty", new byte[0]),
            new RecordHeader("bytes", every), new RecordHeader("größe", "größe".getBytes(UTF_8)));
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String made = topic(1);
            long stamp = System.currentTimeMillis() - 5000;
            var records = new ArrayList<ProducerRecord<byte[], byte[]>>();
            for (int number = 0; number < 200; number++) {
                byte[] value = (number + ":" + "x".repeat(300)).getBytes(UTF_8);
                records.add(new ProducerRecord<>(made, 0, stamp, ("" + number).getBytes(UTF_8), value, headers));
            }
            send(Map.of("compression.type", codec), records);
            int number = 0;
            for (var record : read(made, 1, records.size())) {
                var sent = records.get(number);
                same(text(record.key()), text(sent.key()), codec + ": key");
                same(text(record.value()), text(sent.value()), codec + ": value");
                same(List.of(record.headers().toArray()), headers, codec + ": headers");
                same(record.timestamp(), stamp, codec + ": time");
                same(record.offset(), (long) number++, codec + ": offset");
            }
        }
        System.out.println("  none, gzip, snappy, lz4, zstd: keys, values, headers and times come back byte for byte");
    }

    static void idempotent() throws Exception {
        String made = topic(PARTITIONS);
        int count = 3000;
        var records = IntStream.range(0, count).mapToObj(n -> record(made, n % PARTITIONS, "" + n)).collect(Collectors.toList());
        send(Map.of("batch.size", 2000, "max.in.flight.requests.per.connection", 5), records);
        for (String acks : List.of("0", "1")) {
            int base = count;
            var more = IntStream.range(0, PARTITIONS).mapToObj(p -> record(made, p, "" + (base + p))).collect(Collectors.toList());
            send(Map.of("acks", acks, "enable.idempotence", false), more);
            count += PARTITIONS;
        }
        Map<Integer, List<Integer>> seen = new HashMap<>();
        for (var record : read(made, PARTITIONS, count)) {
            seen.computeIfAbsent(record.partition(), p -> new ArrayList<>()).add(Integer.valueOf(text(record.value())));
        }
        for (int partition = 0; partition < PARTITIONS; partition++) {
            int first = partition;
            var wanted = IntStream.iterate(first, n -> n + PARTITIONS).limit(count / PARTITIONS).boxed().collect(Collectors.toList());
            same(seen.get(partition), wanted, "the order of partition " + partition);
        }
        System.out.println("  an idempotent producer and acks of 0 and 1: each record once, in order");
    }

    static void delay() throws Exception {
        if (PLAIN) return;
        String made = topic(1);
        long begun = System.currentTimeMillis();
        List<Header> headers = List.of(new RecordHeader("punctual-delay", ("" + DELAY_MS).getBytes(UTF_8)),
            new RecordHeader("kept", "as it was".getBytes(UTF_8)));
        var records = new ArrayList<ProducerRecord<byte[], byte[]>>();
        for (int number = 0; number < 3; number++) {
            records.add(new ProducerRecord<>(made, 0, null, null, ("later " + number).getBytes(UTF_8), headers));
            records.add(record(made, 0, "at once " + number));
        }
        var answers = send(Map.of("linger.ms", 100), records).stream().map(RecordMetadata::offset).collect(Collectors.toList());
        same(answers, List.of(0L, 1L, 2L, 3L, 4L, 5L), "offsets");
        var found = read(made, 1, 6);
        same(found.stream().map(one -> text(one.value())).collect(Collectors.toList()),
            List.of("at once 0", "at once 1", "at once 2", "later 0", "later 1", "later 2"), "the order");
        same(found.stream().map(ConsumerRecord::offset).collect(Collectors.toList()), List.of(1L, 3L, 5L, 6L, 7L, 8L), "offsets");
        for (var record : found.subList(3, 6)) {
            long due = Long.parseLong(text(record.headers().lastHeader("punctual-due").value()));
            expect(due >= begun + DELAY_MS && System.currentTimeMillis() >= due, "due " + due + ", sent after " + begun);
            expect(record.headers().lastHeader("punctual-id") != null, "no id");
            expect(record.headers().lastHeader("punctual-delay") == null, "the delay is still there");
            same(text(record.headers().lastHeader("kept").value()), "as it was", "a header of one's own");
            expect(record.timestamp() >= due, "stamped " + record.timestamp() + ", due " + due);
        }
        List<Header> bad = List.of(new RecordHeader("punctual-delay", "soon".getBytes(UTF_8)));
        refused(InvalidRecordException.class, () -> send(Map.of(), List.of(new ProducerRecord<>(made, 0, null, null, new byte[1], bad))));
        System.out.println("  delayed records come, not early, at new offsets, with their headers");
    }

    @SuppressWarnings("removal")
    static void resume() throws Exception {
        String made = topic(PARTITIONS), group = name("group");
        send(Map.of(), IntStream.range(0, 60).mapToObj(n -> record(made, n % PARTITIONS, "" + n)).collect(Collectors.toList()));
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        for (int p = 0; p < PARTITIONS; p++) wanted.put(new TopicPartition(made, p), new OffsetAndMetadata(7, "note " + p));
        try (var reader = consumer(group, Map.of())) {
            reader.subscribe(List.of(made));
            take(reader, 60);
            reader.commitSync(wanted);
            var described = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
            same(described.members().size(), 1, "members of the group");
            expect(described.toString().contains("tate=Stable"), "the group is not stable: " + described);
        }
        try (var reader = consumer(group, Map.of())) {
            reader.subscribe(List.of(made));
            var left = take(reader, 60 - 7 * PARTITIONS).stream().map(one -> Integer.valueOf(text(one.value()))).sorted().collect(Collectors.toList());
            same(left, IntStream.range(7 * PARTITIONS, 60).boxed().collect(Collectors.toList()), "what is resumed");
            same(reader.committed(wanted.keySet()), wanted, "committed");
        }
        expect(get(admin.listConsumerGroups().all()).stream().anyMatch(one -> one.groupId().equals(group)), "the group is not listed");
        same(get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()), wanted, "offsets of the group");
        get(admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition(made, 0), new OffsetAndMetadata(3))).all());
        get(admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(made, 1))).all());
        var offsets = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        same(offsets.get(new TopicPartition(made, 0)).offset(), 3L, "an offset that was changed");
        expect(offsets.get(new TopicPartition(made, 1)) == null, "an offset that was deleted is there");
        get(admin.deleteConsumerGroups(List.of(group)).all());
        expect(get(admin.listConsumerGroups().all()).stream().noneMatch(one -> one.groupId().equals(group)), "the group is still listed");
        System.out.println("  commits are kept with their notes, and reading resumes there");
    }

    // A member of a group with a thread of its own, as every consumer has in an application.
    static class Member implements ConsumerRebalanceListener {
        final Set<Integer> partitions = ConcurrentHashMap.newKeySet();
        final List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        final Thread thread;
        volatile boolean stop;
        volatile Throwable failure;

        Member(String topic, String group, String assignor) {
            var settings = Map.<String, Object>of("partition.assignment.strategy", assignor);
            thread = new Thread(() -> {
                try (var reader = consumer(group, settings)) {
                    reader.subscribe(List.of(topic), this);
                    while (!stop) reader.poll(Duration.ofMillis(100)).forEach(record -> bodies.add(text(record.value())));
                } catch (Throwable error) {
                    failure = error;
                }
            });
            thread.start();
        }

        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            given.forEach(one -> partitions.add(one.partition()));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            taken.forEach(one -> partitions.remove(one.partition()));
        }

        boolean holds(int count) {
            if (failure != null) throw new RuntimeException(failure);
            return partitions.size() == count;
        }

        void stop() throws Exception {
            stop = true;
            thread.join(PATIENCE_MS);
        }
    }

    static void rebalance(String what, String assignor) throws Exception {
        String made = topic(PARTITIONS), group = name("group");
        Member first = new Member(made, group, assignor);
        until("the first member", () -> first.holds(PARTITIONS));
        Member second = new Member(made, group, assignor);
        until("both members to share", () -> !first.holds(0) && !second.holds(0) && first.partitions.size() + second.partitions.size() == PARTITIONS);
        second.stop();
        until("the partitions of the one that left", () -> first.holds(PARTITIONS));
        if (what.equals("range")) crash(first, made, group);
        send(Map.of(), IntStream.range(0, 30).mapToObj(n -> record(made, n % PARTITIONS, "" + n)).collect(Collectors.toList()));
        until("all records", () -> first.bodies.size() >= 30);
        first.stop();
        var numbers = first.bodies.stream().map(Integer::valueOf).sorted().collect(Collectors.toList());
        same(numbers, IntStream.range(0, 30).boxed().collect(Collectors.toList()), "what the last member got");
        System.out.println("  " + what + ": members join, leave and crash");
    }

    static void crash(Member first, String topic, String group) throws Exception {
        String java = System.getProperty("java.home") + "/bin/java";
        Process other = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), "KafkaClient",
            address, "member", topic, group).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try (var said = new BufferedReader(new InputStreamReader(other.getInputStream()))) {
            expect("assigned".equals(said.readLine()), "the other member ended instead of joining");
        } finally {
            other.destroyForcibly().waitFor();
        }
        until("the partitions of the one that crashed", () -> first.holds(PARTITIONS));
    }

    static void beMember(String topic, String group) throws Exception {
        Member one = new Member(topic, group, "org.apache.kafka.clients.consumer.RangeAssignor");
        until("an assignment", () -> !one.holds(0));
        System.out.println("assigned");
        one.thread.join();
    }

    static void deleteRecords() throws Exception {
        String made = topic(1);
        TopicPartition partition = new TopicPartition(made, 0);
        send(Map.of(), IntStream.range(0, 10).mapToObj(n -> record(made, 0, "" + n)).collect(Collectors.toList()));
        get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).all());
        same(get(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all()).get(partition).offset(), 4L, "the first offset");
        same(get(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all()).get(partition).offset(), 10L, "the next offset");
        same(get(admin.listOffsets(Map.of(partition, OffsetSpec.forTimestamp(0))).all()).get(partition).offset(), 4L, "the offset of a time");
        same(text(read(made, 1, 6).get(0).value()), "4", "the first record");
        System.out.println("  records are deleted, and offsets listed");
    }

    // Transactions are not offered: that must be said, and not by silence.
    static void noTransactions() {
        if (PLAIN) return;
        try (var producer = producer(Map.of("transactional.id", "x", "max.block.ms", 60_000))) {
            producer.initTransactions();
            throw new IllegalStateException("a transactional producer was accepted");
        } catch (org.apache.kafka.common.KafkaException refused) {
            expect(!(refused instanceof TimeoutException), "a transactional producer was left waiting: " + refused);
            System.out.println("  transactions are refused: " + refused.getMessage());
        }
    }
}
