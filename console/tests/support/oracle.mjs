// What the figures of a broker must be, by what was done to it: plain sums, and nothing asked of the broker.
//
// A message that falls due by itself counts as fired at once: the figures are compared when all that
// was to fall due has fallen due.

/** Random numbers that are the same for the same seed (mulberry32). */
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** From 0 up to 1. */
  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number, both bounds included. */
  between(least, most) {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(part) {
    return this.next() < part;
  }

  pick(list) {
    return list[this.between(0, list.length - 1)];
  }
}

const TOPIC = { scheduled: 0, fired: 0, cancelled: 0, replaced: 0, acked: 0, retried: 0, dead: 0 };
const GROUP = { lag: 0, in_flight: 0, retrying: 0, dead: 0 };
const APP = { scheduled: 0, bytes: 0, refused: 0 };

const sum = (counts, field) => [...counts.values()].reduce((total, one) => total + one[field], 0);

export class Oracle {
  topics = new Map();
  groups = new Map();
  apps = new Map();
  /** Messages that consumers were given, each time. */
  received = 0;
  /** Messages that the broker moved from one list of a group to another when their time came. */
  moved = 0;
  /** How many there were of each kind of operation; one is what is done to one message. */
  operations = new Map();

  topic(name) {
    this.topics.set(name, { ...TOPIC, groups: [] });
  }

  app(key) {
    this.apps.set(key, { ...APP });
  }

  /** A group that is there before the first message of its topic. */
  group(topic, name) {
    const group = { ...GROUP };
    this.groups.set(`${topic}/${name}`, group);
    this.topics.get(topic).groups.push(group);
    return group;
  }

  did(kind, count) {
    this.operations.set(kind, (this.operations.get(kind) ?? 0) + count);
  }

  get done() {
    return [...this.operations.values()].reduce((total, count) => total + count, 0);
  }

  sent(topic, app, messages) {
    this.topics.get(topic).scheduled += messages.length;
    const counts = this.apps.get(app);
    counts.scheduled += messages.length;
    for (const { key = '', body, headers = {} } of messages) {
      counts.bytes += Buffer.byteLength(key) + Buffer.byteLength(body);
      for (const [name, value] of Object.entries(headers)) counts.bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
    }
  }

  /** Occurrences of a series after its first: the broker makes them, and no app sends them. */
  followed(topic, count) {
    this.topics.get(topic).scheduled += count;
  }

  fired(topic, count) {
    const counts = this.topics.get(topic);
    counts.fired += count;
    for (const group of counts.groups) group.lag += count;
  }

  cancelled(topic, count) {
    this.topics.get(topic).cancelled += count;
  }

  /** Messages that gave way to others under their own ids. */
  replaced(topic, count) {
    this.topics.get(topic).replaced += count;
  }

  given(group, count) {
    this.received += count;
    group.in_flight += count;
  }

  acked(topic, group, count) {
    this.topics.get(topic).acked += count;
    group.in_flight -= count;
    group.lag -= count;
  }

  /** Failed; they come again at once, or wait for longer than anybody looks. */
  failed(topic, group, count, atOnce) {
    this.topics.get(topic).retried += count;
    group.in_flight -= count;
    if (atOnce) this.moved += count;
    else [group.lag, group.retrying] = [group.lag - count, group.retrying + count];
  }

  died(topic, group, count) {
    this.topics.get(topic).dead += count;
    group.in_flight -= count;
    group.lag -= count;
    group.dead += count;
    this.moved += count;
  }

  redriven(group, count) {
    group.dead -= count;
    group.lag += count;
    this.moved += count;
  }

  purged(group, count) {
    group.dead -= count;
  }

  /** Nobody holds anything any more. */
  restarted() {
    for (const group of this.groups.values()) group.in_flight = 0;
  }

  pending(topic) {
    const { scheduled, fired, cancelled, replaced } = this.topics.get(topic);
    return scheduled - fired - cancelled - replaced;
  }

  /** The figures of a topic, by the names that the broker has for them. */
  ofTopic(topic) {
    const { scheduled, fired, cancelled, acked, retried, dead } = this.topics.get(topic);
    return { scheduled, fired, delivered: fired, acked, cancelled, retried, dead };
  }

  /** Totals of the whole. What is moved within a group falls due and is delivered, too. */
  whole() {
    const of = (field) => sum(this.topics, field);
    const fired = of('fired') + this.moved;
    return {
      scheduled: of('scheduled'),
      fired,
      delivered: fired,
      received: this.received,
      acked: of('acked'),
      cancelled: of('cancelled'),
      skipped: 0,
      retried: of('retried'),
      dead: of('dead'),
    };
  }

  /** How it stands. */
  standing() {
    const of = (field) => sum(this.groups, field);
    const pending = [...this.topics.keys()].reduce((total, topic) => total + this.pending(topic), 0);
    return { pending, lag: of('lag'), in_flight: of('in_flight'), retrying: of('retrying'), dead_letters: of('dead') };
  }
}
