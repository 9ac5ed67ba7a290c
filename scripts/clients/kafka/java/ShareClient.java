// Apache Kafka's share consumer against a broker: `java -cp 'jars/*' ShareClient.java HOST:PORT HTTP`.
// Members of one group accept, release, reject and renew; what HTTP shows of the group must be the same.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.net.http.*;
import java.time.Duration;
import java.util.*;
import java.util.function.BooleanSupplier;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.*;

public class ShareClient {
    static final long PATIENCE_MS = 60_000;
    static final String GROUP = "workers";
    static final HttpClient HTTP = HttpClient.newHttpClient();
    static String address;
    static String http;
    static String topic;
    static String path;

    public static void main(String[] arguments) {
        address = arguments[0];
        http = arguments[1];
        topic = "share-" + UUID.randomUUID().toString().substring(0, 8);
        path = "/v1/topics/" + topic + "/groups/" + GROUP;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            ask("PUT", path, "{\"retry\":{\"ladder\":[\"100ms\",\"100ms\"]},\"max_attempts\":3}");
            explicit();
            implicit();
            givenBack();
            describe(admin);
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
        expect(Objects.equals(found, wanted), what + ": found " + found + ", wanted " + wanted);
    }

    static void until(String what, BooleanSupplier ask) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!ask.getAsBoolean()) expect(System.currentTimeMillis() < end, "waited too long for " + what);
    }

    static String ask(String method, String path, String body) {
        try {
            var content = HttpRequest.BodyPublishers.ofString(body);
            var request = HttpRequest.newBuilder(URI.create("http://" + http + path))
                .header("content-type", "application/json").method(method, content).build();
            var answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
            expect(answer.statusCode() < 300, method + " " + path + ": " + answer.body());
            return answer.body();
        } catch (java.io.IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static boolean isSettled() {
        return ask("GET", path, "").replace(" ", "").contains("\"lag\":0,");
    }

    static void produce(List<String> bodies) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String body : bodies) {
                var record = new ProducerRecord<String, String>(topic, body);
                record.headers().add("kept", body.getBytes(UTF_8));
                producer.send(record).get();
            }
        }
    }

    static KafkaShareConsumer<String, String> member(String mode) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", address, "group.id", GROUP, "share.acknowledgement.mode", mode);
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> all = new ArrayList<>();
        consumer.poll(Duration.ofSeconds(1)).forEach(all::add);
        return all;
    }

    static void commit(KafkaShareConsumer<String, String> consumer) {
        consumer.commitSync().forEach((place, error) ->
            expect(error.isEmpty(), place + " could not be committed: " + error));
    }

    // Each record is told apart by what is said about it; each delivery is noted.
    static void explicit() throws Exception {
        List<String> bodies = List.of("accepted-1", "accepted-2", "released", "rejected", "once", "renewed");
        Map<String, List<Integer>> seen = new TreeMap<>();
        Map<String, String> places = new TreeMap<>();
        try (var consumer = member("explicit")) {
            poll(consumer);
            produce(bodies);
            until("everything to be settled", () -> {
                for (var record : poll(consumer)) {
                    String body = record.value();
                    same(new String(record.headers().lastHeader("kept").value(), UTF_8), body, "a header");
                    String place = record.partition() + ":" + record.offset();
                    same(places.computeIfAbsent(body, any -> place), place, "where " + body + " is");
                    int count = record.deliveryCount().orElseThrow();
                    seen.computeIfAbsent(body, any -> new ArrayList<>()).add(count);
                    AcknowledgeType kind = AcknowledgeType.ACCEPT;
                    if (body.equals("released") || (body.equals("once") && count == 1)) kind = AcknowledgeType.RELEASE;
                    if (body.equals("rejected")) kind = AcknowledgeType.REJECT;
                    // The client itself gives out again what was renewed.
                    if (body.equals("renewed") && seen.get(body).size() == 1) kind = AcknowledgeType.RENEW;
                    consumer.acknowledge(record, kind);
                }
                commit(consumer);
                return seen.getOrDefault("released", List.of()).size() == 3 && isSettled();
            });
        }
        Map<String, List<Integer>> wanted = new TreeMap<>(Map.of(
            "accepted-1", List.of(1), "accepted-2", List.of(1), "released", List.of(1, 2, 3),
            "rejected", List.of(1), "once", List.of(1, 2), "renewed", List.of(1, 1)));
        same(seen, wanted, "deliveries");
        // What is settled is on its way to the dead letters: they come as messages that are due at once.
        until("two dead letters", () -> ask("GET", path, "").contains("\"dead\":2"));
        String dead = ask("GET", path + "/dead", "");
        expect(dead.contains("attempts_exhausted") && dead.contains("rejected"), "dead letters: " + dead);
        expect(!dead.contains("accepted-1") && !dead.contains("renewed"), "dead letters: " + dead);
        System.out.println("  accepted, released, rejected, renewed, counted");
    }

    // Two members get everything once between them.
    static void implicit() throws Exception {
        List<String> bodies =
            IntStream.range(0, 200).mapToObj(number -> String.format("shared-%03d", number)).toList();
        List<String> seen = new ArrayList<>();
        try (var one = member("implicit"); var two = member("implicit")) {
            poll(one);
            poll(two);
            produce(bodies);
            until("all records", () -> {
                for (var consumer : List.of(one, two)) poll(consumer).forEach(record -> seen.add(record.value()));
                return seen.size() >= bodies.size();
            });
            commit(one);
            commit(two);
        }
        Collections.sort(seen);
        same(seen, bodies, "what came");
        until("nothing to be left", ShareClient::isSettled);
        System.out.println("  shared between two members");
    }

    // What a member has not said anything about when it closes goes to the next one.
    static void givenBack() throws Exception {
        produce(List.of("left"));
        try (var first = member("explicit")) {
            until("the record", () -> !poll(first).isEmpty());
        }
        try (var second = member("explicit")) {
            List<ConsumerRecord<String, String>> again = new ArrayList<>();
            until("the record again", () -> {
                again.addAll(poll(second));
                return !again.isEmpty();
            });
            same(again.get(0).value(), "left", "what came");
            again.forEach(record -> second.acknowledge(record, AcknowledgeType.ACCEPT));
            commit(second);
        }
        System.out.println("  given back");
    }

    static ShareGroupDescription shown(Admin admin) {
        try {
            return admin.describeShareGroups(List.of(GROUP)).describedGroups().get(GROUP).get();
        } catch (java.util.concurrent.ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void describe(Admin admin) throws Exception {
        try (var consumer = member("implicit")) {
            // Those that have closed may still be counted for a moment, and this one not yet.
            until("the only member", () -> {
                poll(consumer);
                return shown(admin).members().size() == 1;
            });
            var described = shown(admin);
            same(described.groupState().toString(), "Stable", "the state of the group");
            same(described.members().size(), 1, "members");
            var assigned = described.members().iterator().next().assignment().topicPartitions();
            same(assigned.size(), 2, "partitions assigned");
        }
        System.out.println("  described");
    }
}
