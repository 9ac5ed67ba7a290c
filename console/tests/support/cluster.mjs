// Three nodes of the real program over a real etcd, MariaDB and Kafka, which end with the test.
//
// `scripts/services` starts the services, in a folder of their own. Where one cannot be had, the tests
// are left out with what it says; in CI they fail.

import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { until } from './api.mjs';
import { start } from './server.mjs';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const SERVICES = ['etcd', 'mariadb', 'kafka'];
/** What the script answers where a service cannot be had. */
const NOT_THERE = 3;
const NO_CLUSTERS = /built without clusters/;
const SLOTS = 12;
/** How long Kafka's own tools may take; they are slow to start. */
const TOOL_MS = 60_000;

/** Starts everything, or says what is lacking. */
export async function startCluster(names = ['node1', 'node2', 'node3']) {
  const home = await mkdtemp(join(tmpdir(), 'punctual-console-cluster-'));
  const cluster = new Cluster(home);
  try {
    await cluster.begin(names);
    return { cluster };
  } catch (error) {
    await cluster.stop();
    const lacking = error.code === NOT_THERE ? lastLine(error.stderr) : NO_CLUSTERS.exec(error.message)?.[0];
    if (!lacking || process.env.CI) throw error;
    return { lacking };
  }
}

class Cluster {
  #home;
  #addresses;
  nodes = [];

  constructor(home) {
    this.#home = home;
  }

  async begin(names) {
    const said = await services('up', this.#home);
    this.#addresses = Object.fromEntries(said.trim().split('\n').map((line) => line.split(' ')));
    // The first one makes the tables.
    for (const name of names) {
      const port = await freePort();
      const node = await start({ auth: true, port, env: this.#settings(name, port) });
      this.nodes.push(Object.assign(node, { name }));
    }
    await this.whole();
  }

  #settings(name, port) {
    const { etcd, mariadb, kafka } = this.#addresses;
    return {
      PUNCTUAL_CLUSTER__COORDINATOR: 'etcd',
      PUNCTUAL_CLUSTER__ENDPOINTS: etcd,
      PUNCTUAL_CLUSTER__NODE: name,
      PUNCTUAL_CLUSTER__ADVERTISE: `http://127.0.0.1:${port}`,
      PUNCTUAL_CLUSTER__SECRET: 'between-these-nodes-only',
      PUNCTUAL_CLUSTER__SLOTS: `${SLOTS}`,
      PUNCTUAL_CLUSTER__LEASE: '4s',
      PUNCTUAL_TIMELINE__KIND: 'mysql',
      PUNCTUAL_TIMELINE__URL: `mysql://root@${mariadb}/punctual`,
      PUNCTUAL_OUTLET__KIND: 'kafka',
      PUNCTUAL_OUTLET__BROKERS: kafka,
      PUNCTUAL_ALERTS__INTERVAL: '500ms',
    };
  }

  /** Waits until every node that runs sees all of them, and each has its share of the slots. */
  async whole(nodes = this.nodes) {
    const share = SLOTS / nodes.length;
    const isWhole = (view) => view?.nodes?.length === nodes.length && view.nodes.every(({ slots }) => slots === share);
    for (const node of nodes) await node.api.until('all slots to be shared out', '/v1/cluster', isWhole);
  }

  /** The name under which a node is registered, which is another one after each start. */
  async idOf(node) {
    const { nodes } = await this.nodes.find((one) => one.isUp).api.get('/v1/cluster');
    return nodes.find(({ id }) => id.startsWith(`${node.name}-`)).id;
  }

  /** How many partitions Kafka says that a topic has; none where there is no such topic. */
  async partitionsInKafka(topic) {
    const tool = ['org.apache.kafka.tools.TopicCommand', '--bootstrap-server', this.#addresses.kafka];
    const said = await kafkaTool([...tool, '--describe', '--topic', topic]).catch(({ stdout }) => stdout ?? '');
    return Number(/PartitionCount:\s*(\d+)/.exec(said)?.[1] ?? 0);
  }

  /** The first so many messages of a topic in Kafka; waits for them. */
  async messagesInKafka(topic, count) {
    const tool = ['org.apache.kafka.tools.consumer.ConsoleConsumer', '--bootstrap-server', this.#addresses.kafka];
    const asked = ['--topic', topic, '--from-beginning', '--max-messages', `${count}`, '--timeout-ms', `${TOOL_MS / 2}`];
    const said = await kafkaTool([...tool, ...asked, '--formatter-property', 'print.key=true']);
    return said.split('\n').filter((line) => line !== '').map((line) => line.split('\t'));
  }

  async stop() {
    await Promise.all(this.nodes.map((node) => node.stop()));
    await services('down', this.#home);
    await rm(this.#home, { recursive: true, force: true });
  }
}

async function services(command, home) {
  const { stdout } = await run(join(ROOT, 'scripts/services'), [command, ...SERVICES, '--dir', join(home, 'services')]);
  return stdout;
}

async function kafkaTool(args) {
  const { stdout: jars } = await run(join(ROOT, 'scripts/clients/kafka/kafka.sh'), ['--jars']);
  const { stdout } = await run('java', ['-XX:+UseSerialGC', '-cp', `${jars.trim()}/*`, ...args], { timeout: TOOL_MS });
  return stdout;
}

/** A port that is free now, and that no outgoing connection is given while its node is down. */
function freePort() {
  const tried = (port) =>
    new Promise((answer) => {
      const probe = createServer().once('error', () => answer(0));
      probe.listen(port, '127.0.0.1', () => probe.close(() => answer(port)));
    });
  return until('a free port', () => tried(20_000 + Math.floor(Math.random() * 12_000)));
}

const lastLine = (text) => text.trim().split('\n').at(-1);
