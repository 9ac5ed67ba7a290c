// kafkajs against a broker: `client.mjs HOST:PORT`. With PLAIN set the broker is one that does not delay.
import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import kafkajs from "kafkajs";
import SnappyCodec from "kafkajs-snappy";
import lz4 from "lz4-napi";
import * as zstd from "@bokuweb/zstd-wasm";

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs;
const PATIENCE_MS = 60_000;
const PARTITIONS = 3;
// Longer than a busy machine takes to send what must be written before it is due.
const DELAY_MS = 5000;

await zstd.init();
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrameSync(encoder.buffer),
  decompress: async (bytes) => lz4.decompressFrameSync(bytes),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (bytes) => Buffer.from(zstd.decompress(bytes)),
});

const [address, role, ...rest] = process.argv.slice(2);
const patient = { connectionTimeout: PATIENCE_MS, requestTimeout: PATIENCE_MS };
const kafka = new Kafka({ clientId: "kafkajs-check", brokers: [address], logLevel: logLevel.NOTHING, ...patient });
const admin = kafka.admin();

function fail(reason) {
  console.error(`FAILED: ${reason}`);
  process.exit(1);
}

function expect(condition, reason) {
  if (!condition) fail(reason);
}

function same(found, wanted, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  expect(a === b, `${what}: found ${a?.slice(0, 300)}, wanted ${b?.slice(0, 300)}`);
}

async function until(what, ask) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await ask())) {
    expect(Date.now() < end, `waited too long for ${what}`);
    await pause(50);
  }
}

function name(kind) {
  return `kafkajs-${kind}-${randomUUID().slice(0, 8)}`;
}

async function topic(numPartitions = PARTITIONS) {
  const made = name("topic");
  expect(await admin.createTopics({ topics: [{ topic: made, numPartitions }] }), "no topic was made");
  await until("the topic", async () => (await admin.listTopics()).includes(made));
  return made;
}

async function send(topicName, messages, settings = {}, how = {}) {
  const producer = kafka.producer(settings);
  await producer.connect();
  const answers = await producer.send({ topic: topicName, messages, ...how });
  await producer.disconnect();
  return answers;
}

// A member of a group, which notes what it gets and holds.
class Member {
  constructor(group) {
    this.records = [];
    this.partitions = [];
    this.consumer = kafka.consumer({ groupId: group, sessionTimeout: 15_000, heartbeatInterval: 500, maxWaitTimeInMs: 300 });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = Object.values(payload.memberAssignment).flat().sort();
    });
    this.consumer.on(this.consumer.events.REBALANCING, () => (this.partitions = []));
  }

  async start(topicName) {
    await this.consumer.connect();
    await this.consumer.subscribe({ topic: topicName, fromBeginning: true });
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.records.push({ ...message, partition, seen: Date.now() });
      },
    });
    return this;
  }

  async stop() {
    await this.consumer.disconnect();
  }
}

async function read(topicName, count) {
  const reader = await new Member(name("reader")).start(topicName);
  await until(`${count} records`, () => reader.records.length >= count);
  await reader.stop();
  return reader.records;
}

async function administer() {
  const made = await topic();
  same((await admin.fetchTopicMetadata({ topics: [made] })).topics[0].partitions.length, PARTITIONS, "partitions");
  same(await admin.createTopics({ topics: [{ topic: made }] }), false, "making a topic twice");
  await admin.createPartitions({ topicPartitions: [{ topic: made, count: PARTITIONS + 1 }] });
  const count = async () => (await admin.fetchTopicMetadata({ topics: [made] })).topics[0].partitions.length;
  await until("the new partition", async () => (await count()) === PARTITIONS + 1);
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: made }];
  const described = await admin.describeConfigs({ resources, includeSynonyms: false });
  const settings = described.resources[0].configEntries.map((one) => one.configName);
  for (const key of ["cleanup.policy", "retention.ms"]) {
    expect(settings.includes(key), `the settings of a topic lack ${key}: ${settings}`);
  }
  await admin.alterConfigs({ resources: [{ ...resources[0], configEntries: [{ name: "retention.ms", value: "3600000" }] }] });
  const changed = await admin.describeConfigs({ resources: [{ ...resources[0], configNames: ["retention.ms"] }] });
  same(changed.resources[0].configEntries[0].configValue, "3600000", "retention.ms");
  const cluster = await admin.describeCluster();
  same(cluster.brokers.length, 1, "brokers");
  await admin.deleteTopics({ topics: [made] });
  await until("the topic to be gone", async () => !(await admin.listTopics()).includes(made));
  console.log("  topics are made, changed, described and deleted");
}

async function compress() {
  const codecs = { none: 0, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD };
  const headers = { plain: "value", twice: ["first", "second"], empty: "", größe: "größe", bytes: Buffer.from([0, 255, 128]) };
  const wanted = JSON.stringify({ plain: Buffer.from("value"), twice: [Buffer.from("first"), Buffer.from("second")], empty: Buffer.from(""), größe: Buffer.from("größe"), bytes: Buffer.from([0, 255, 128]) });
  for (const [codec, compression] of Object.entries(codecs)) {
    const made = await topic(1);
    const messages = [...Array(50).keys()].map((number) => ({ key: `${number}`, value: `${number}:${"x".repeat(300)}`, headers, timestamp: `${Date.now() - 5000}` }));
    await send(made, messages, {}, { compression });
    (await read(made, messages.length)).forEach((record, number) => {
      same(record.key.toString(), messages[number].key, `${codec}: key`);
      same(record.value.toString(), messages[number].value, `${codec}: value`);
      same(record.timestamp, messages[number].timestamp, `${codec}: time`);
      same(record.offset, `${number}`, `${codec}: offset`);
      expect(JSON.stringify(record.headers) === wanted, `${codec}: headers ${JSON.stringify(record.headers)}`);
    });
  }
  console.log("  none, gzip, snappy, lz4, zstd: keys, values, headers and times come back");
}

async function idempotent() {
  const made = await topic(1);
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let batch = 0; batch < 20; batch += 1) {
    const messages = [...Array(20).keys()].map((number) => ({ value: `${batch * 20 + number}` }));
    await producer.send({ topic: made, messages, acks: -1 });
  }
  await producer.disconnect();
  for (const [index, acks] of [0, 1].entries()) await send(made, [{ value: `${400 + index}` }], {}, { acks });
  const numbers = (await read(made, 402)).map((record) => Number(record.value));
  same(numbers, [...Array(402).keys()], "each record once, in order");
  console.log("  an idempotent producer and acks of 0 and 1: each record once, in order");
}

async function delay() {
  if (process.env.PLAIN) return;
  const made = await topic(1);
  const begun = Date.now();
  const headers = { "punctual-delay": `${DELAY_MS}`, kept: "as it was" };
  const messages = [0, 1, 2].map((number) => ({ value: `later ${number}`, headers }));
  const answers = await send(made, [...messages, { value: "at once" }]);
  same(answers[0].baseOffset, "0", "the reserved offset");
  const records = await read(made, 4);
  same(records.map((one) => one.value.toString()), ["at once", "later 0", "later 1", "later 2"], "the order");
  same(records.map((one) => Number(one.offset)), [3, 4, 5, 6], "offsets");
  for (const record of records.slice(1)) {
    const due = Number(record.headers["punctual-due"]);
    expect(due >= begun + DELAY_MS && record.seen >= due - 1, `${record.value} was due ${due}, came ${record.seen}`);
    expect(record.headers["punctual-id"] && !record.headers["punctual-delay"], `${Object.keys(record.headers)}`);
    same(record.headers.kept.toString(), "as it was", "a header of one's own");
  }
  console.log("  delayed records come, not early, at new offsets, with their headers");
}

async function resume() {
  const [made, group] = [await topic(1), name("group")];
  await send(made, [...Array(30).keys()].map((number) => ({ value: `${number}` })));
  const first = await new Member(group).start(made);
  await until("the records", () => first.records.length >= 30);
  await first.consumer.commitOffsets([{ topic: made, partition: 0, offset: "7", metadata: "a note" }]);
  const described = await admin.describeGroups([group]);
  same([described.groups[0].state, described.groups[0].members.length], ["Stable", 1], "the group");
  await first.stop();
  const second = await new Member(group).start(made);
  await until("what is left", () => second.records.length >= 23);
  same(Number(second.records[0].value), 7, "where reading resumes");
  await second.stop();
  const offsets = await admin.fetchOffsets({ groupId: group, topics: [made] });
  same([offsets[0].partitions[0].offset, offsets[0].partitions[0].metadata], ["7", "a note"], "committed");
  expect((await admin.listGroups()).groups.some((one) => one.groupId === group), "the group is not listed");
  await admin.resetOffsets({ groupId: group, topic: made, earliest: true });
  await admin.deleteGroups([group]);
  expect(!(await admin.listGroups()).groups.some((one) => one.groupId === group), "the group is still listed");
  console.log("  commits are kept with their notes, and reading resumes there");
}

async function rebalance() {
  const [made, group] = [await topic(), name("group")];
  const all = JSON.stringify([0, 1, 2]);
  const holdsAll = (one) => JSON.stringify(one.partitions) === all;
  const first = await new Member(group).start(made);
  await until("the first member", () => holdsAll(first));
  const second = await new Member(group).start(made);
  const shared = () => first.partitions.length > 0 && second.partitions.length > 0 && JSON.stringify([...first.partitions, ...second.partitions].sort()) === all;
  await until("both members to share", shared);
  await second.stop();
  await until("the partitions of the one that left", () => holdsAll(first));
  const other = fork(process.argv[1], [address, "member", made, group]);
  let held = 0;
  other.on("message", (count) => (held = count));
  await until("the other process to hold some", () => held > 0);
  other.kill("SIGKILL");
  await until("the partitions of the one that crashed", () => holdsAll(first));
  const messages = [...Array(30).keys()].map((number) => ({ value: `${number}`, partition: number % PARTITIONS }));
  await send(made, messages);
  await until("all records", () => first.records.length >= 30);
  const numbers = first.records.map((one) => Number(one.value)).sort((a, b) => a - b);
  same(numbers, [...Array(30).keys()], "what the last member got");
  await first.stop();
  console.log("  members join, leave and crash");
}

// The other process: joins, says what it holds, and stays until it is killed.
async function beMember(topicName, group) {
  const one = await new Member(group).start(topicName);
  setInterval(() => process.send(one.partitions.length), 50);
}

process.on("unhandledRejection", (error) => fail(error?.stack ?? error));
process.on("disconnect", () => process.exit(0));
if (role === "member") {
  await beMember(...rest);
} else {
  await admin.connect();
  for (const step of [administer, compress, idempotent, delay, resume, rebalance]) await step();
  await admin.disconnect();
  console.log("all is well");
  process.exit(0);
}
