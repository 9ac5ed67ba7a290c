// Everything that is done to messages, mixed at random, over the public interface.
//
// Each topic has a hand of its own that does one thing after the other, with random numbers of its own. How many messages
// a group has to give at a moment is up to the broker, so a seed repeats the dice and not every step. Every answer is held
// to what the oracle expects of it. Where two answers are right (a message is withdrawn at the moment it falls due), the
// oracle goes by the one that was given.

import assert from 'node:assert/strict';

import { until } from './api.mjs';
import { Random } from './oracle.mjs';

const ATTEMPTS = 3;
/** A wait that is over soon, and one that nobody sees the end of. */
const SOON_MS = 1500;
const LATER_MS = 3_600_000;
const FAR = ['2h', '1d', '9d', '30d'];
/** Messages to come that are remembered of a topic, and own ids. */
const POOL_MAX = 3000;
const NAMES_MAX = 500;
/** Messages of a group that are held on to at one time. */
const HELD_MAX = 25;
/** What the app with a quota may have pending, and how much there has to be before it is refused for certain. */
const QUOTA = 1;
const PENDING_MIN = 50;

const VERBS = ['send', 'read', 'see', 'cancel', 'change', 'manage', 'consume'];

/** Topics, apps and groups, and a hand for each topic. */
export async function mixture(api, oracle, { seed, count, size }) {
  const apps = [];
  for (const key of ['shop', 'bank', 'post']) {
    oracle.app(key);
    const { token } = await api.post('/v1/apps', { key, permissions: [{ topics: 'mix.*', groups: '*', verbs: VERBS }] });
    apps.push({ key, token });
  }
  const names = Array.from({ length: count }, (_, number) => `mix.${number}`);
  const hands = [];
  for (const [number, name] of names.entries()) {
    oracle.topic(name);
    await api.put(`/v1/topics/${name}`, { partitions: 1 + (number % 4) });
    const groups = [['work', ATTEMPTS], ...(number % 2 ? [['strict', 1]] : [])];
    const settings = (attempts) => ({ lease: '12h', max_attempts: attempts, retry: { ladder: ['12h', '12h'] } });
    const consumed = [];
    for (const [group, attempts] of groups) {
      await api.put(`/v1/topics/${name}/groups/${group}`, settings(attempts));
      consumed.push({ path: `/v1/topics/${name}/groups/${group}`, attempts, stands: oracle.group(name, group) });
    }
    // Nobody reads for this one.
    if (number % 3 === 0) {
      await api.put(`/v1/topics/${name}/groups/idle`, settings(ATTEMPTS));
      oracle.group(name, 'idle');
    }
    const neighbour = names[(number + 1) % count];
    const random = new Random(seed + number * 7919);
    hands.push(new Hand({ oracle, random, size, name, neighbour, app: apps[number % apps.length], groups: consumed }));
  }
  hands[0].thrifty = await thrifty(api, oracle, names[0]);
  for (const hand of hands) hand.at(api);
  return hands;
}

/** An app that may have next to nothing pending, in a topic where others have more. */
async function thrifty(api, oracle, topic) {
  oracle.app('thrifty');
  const permissions = [{ topics: topic, verbs: ['send'] }];
  const { token } = await api.post('/v1/apps', { key: 'thrifty', permissions, quotas: { pending: QUOTA } });
  return token;
}

/** How often each thing is done, about; a step concerns one message or hundreds. */
const STEPS = [
  ['sendNow', 9], ['sendSoon', 6], ['sendFar', 7], ['sendNamed', 4], ['sendInvalid', 2], ['sendLines', 3], ['sendTooMany', 1],
  ['consume', 30], ['redrive', 2], ['purge', 1],
  ['cancelSome', 4], ['cancelMany', 3], ['cancelTooLate', 1], ['rescheduleSome', 4], ['rescheduleMany', 2], ['pauseSome', 3],
  ['pauseMany', 2], ['resumeMany', 2], ['deliverSome', 3], ['deliverMany', 1], ['replace', 2], ['transact', 4], ['decide', 3], ['repeat', 1],
];
const WEIGHT = STEPS.reduce((sum, [, weight]) => sum + weight, 0);

class Hand {
  /** Messages to come, by batch: what is known of each. */
  #batches = new Map();
  #pool = 0;
  #batch = 0;
  #names = [];
  #open = [];
  #late = [];

  constructor(of) {
    Object.assign(this, of);
    this.path = `/v1/topics/${this.name}`;
    this.done = 0;
  }

  /** Works with this server from now on. */
  at(api) {
    this.api = api.as(this.app.token);
  }

  /** Does everything once, in any order, and goes on until so much was done in all. */
  async work(upto) {
    const all = STEPS.map(([step]) => [this.random.next(), step]).sort(([one], [other]) => one - other);
    for (const [, step] of all) await this[step]();
    while (this.done < upto) await this[this.#step()]();
  }

  #step() {
    // What waits for a group, and what is remembered, stays within bounds.
    if (this.groups.some((group) => group.stands.lag > 2 * POOL_MAX)) return 'consume';
    if (this.#pool > POOL_MAX) return this.random.pick(['cancelMany', 'deliverMany']);
    let at = this.random.between(1, WEIGHT);
    return STEPS.find(([, weight]) => (at -= weight) <= 0)[0];
  }

  #did(kind, count) {
    this.done += count;
    this.oracle.did(kind, count);
  }

  /** Messages of a new batch; what they share is in their keys. Large ones are as large as the run is. */
  #make(least, most, more) {
    this.#batch += 1;
    const prefix = `${this.name}-${this.#batch}/`;
    const length = this.random.between(least, Math.max(least, Math.round(most * this.size)));
    const messages = Array.from({ length }, (_, number) => ({
      key: `${prefix}${number}`,
      body: `of ${this.name}, ${this.#batch}:${number}`,
      ...(number % 5 ? {} : { headers: { number: `${number}` } }),
      ...more(number),
    }));
    return { prefix, messages };
  }

  async #send(messages) {
    const answer = await this.api.post(`${this.path}/messages`, { messages });
    assert.equal(answer.messages.length, messages.length);
    return answer.messages;
  }

  #keep(prefix, messages, answers) {
    this.#batches.set(prefix, answers.map(({ id }, place) => ({ id, key: messages[place].key, paused: false })));
    this.#pool += answers.length;
  }

  #forget(prefix, gone) {
    const left = this.#batches.get(prefix).filter((one) => !gone.has(one));
    this.#pool -= gone.size;
    if (left.length > 0) this.#batches.set(prefix, left);
    else this.#batches.delete(prefix);
  }

  /** A batch that is to come, and nothing where there is none. */
  #some() {
    if (this.#batches.size === 0) return null;
    const prefix = this.random.pick([...this.#batches.keys()]);
    return { prefix, batch: this.#batches.get(prefix) };
  }

  /** A few of the messages that are to come, each to be changed by itself. */
  async #each(most, change) {
    const some = this.#some();
    if (!some) return;
    const gone = new Set();
    for (let left = this.random.between(1, most); left > 0; left -= 1) {
      const one = this.random.pick(some.batch);
      if (!gone.has(one) && (await change(one))) gone.add(one);
    }
    this.#forget(some.prefix, gone);
  }

  /** Begins a job; only some run at one time, whoever they are for. */
  async #job(path, body) {
    const begun = await until('a place among the jobs', async () => {
      const answer = await this.api.ask('POST', path, body);
      return answer.json?.code === 'too_many_jobs' ? null : answer;
    });
    assert.ok(begun.status < 300, begun.text);
    return begun.json;
  }

  /** All of a batch that are not paused, or all that are, at one stroke. */
  async #many(work, { state = 'scheduled', more = {} }, changed) {
    const some = this.#some();
    if (!some) return;
    const concerned = some.batch.filter((one) => one.paused === (state === 'paused'));
    // Not those that were told to come at once and are on their way.
    const later = { from: new Date(Date.now() + LATER_MS).toISOString() };
    const filter = { key_prefix: some.prefix, ...(state === 'paused' ? { state } : later) };
    const answer = await this.#job(`${this.path}/scheduled/${work}`, { filter, wait: '60s', ...more });
    assert.deepEqual([answer.state, answer.matched, answer.failed], ['done', concerned.length, 0], `${work} ${some.prefix}`);
    this.#did(`${work}, many`, concerned.length);
    changed(some.prefix, concerned);
  }

  async sendNow() {
    const { messages } = this.#make(20, 400, () => ({}));
    await this.#send(messages);
    this.#did('send now', messages.length);
    this.oracle.sent(this.name, this.app.key, messages);
    this.oracle.fired(this.name, messages.length);
  }

  async sendSoon() {
    const { messages } = this.#make(10, 200, () => ({ delay: this.random.between(1, SOON_MS) }));
    const answers = await this.#send(messages);
    this.#did('send soon', messages.length);
    this.oracle.sent(this.name, this.app.key, messages);
    // Some are withdrawn while they fall due.
    let cancelled = 0;
    for (const { id } of answers.slice(0, this.random.between(0, 8))) {
      const { status, json } = await this.api.ask('DELETE', `${this.path}/messages/${id}`);
      assert.ok(status === 200 || (status === 409 && json.code === 'already_delivered'), `${status} ${json?.code}`);
      if (status === 200) cancelled += 1;
      this.#did('cancel in time or not', 1);
    }
    this.oracle.cancelled(this.name, cancelled);
    this.oracle.fired(this.name, messages.length - cancelled);
  }

  /** For one moment, all of them. */
  async sendFor(due) {
    const { messages } = this.#make(20, 100, () => ({ deliver_at: due }));
    await this.#send(messages);
    this.#did('send for one moment', messages.length);
    this.oracle.sent(this.name, this.app.key, messages);
    this.oracle.fired(this.name, messages.length);
  }

  async sendFar() {
    const { prefix, messages } = this.#make(10, 250, () => ({ delay: this.random.pick(FAR) }));
    const answers = await this.#send(messages);
    this.#did('send for later', messages.length);
    this.oracle.sent(this.name, this.app.key, messages);
    this.#keep(prefix, messages, answers);
  }

  /** With own ids; some of them again, in the same batch or from earlier ones. */
  async sendNamed() {
    const { messages } = this.#make(5, 60, (number) => ({ id: `${this.name}-${this.#batch}-${number}`, delay: '1d' }));
    const again = Array.from({ length: this.random.between(0, 20) }, () => this.random.pick([...messages, ...this.#names]));
    const answers = await this.#send([...messages, ...again]);
    assert.deepEqual(answers.slice(0, messages.length).filter((one) => one.duplicate), []);
    assert.ok(answers.slice(messages.length).every((one) => one.duplicate), 'sent again');
    this.#did('send with an own id', messages.length);
    this.#did('send again', again.length);
    this.oracle.sent(this.name, this.app.key, messages);
    this.#names.push(...messages);
    this.#names.splice(0, Math.max(0, this.#names.length - NAMES_MAX));
  }

  /** One is wrong, and none is stored. */
  async sendInvalid() {
    const { messages } = this.#make(1, 4, () => ({ delay: '1h' }));
    const wrong = this.random.pick([{ delay: '9000d' }, { delay: 'soon' }, { delay_level: 99 }, { colour: 'red' }]);
    messages[this.random.between(0, messages.length - 1)] = { body: 'wrong', ...wrong };
    const { status } = await this.api.ask('POST', `${this.path}/messages`, { messages });
    assert.equal(status, 400);
    this.#did('send something wrong', messages.length);
  }

  /** As a stream of lines, where each stands for itself. */
  async sendLines() {
    const { prefix, messages } = this.#make(10, 150, () => ({ delay: this.random.pick(FAR) }));
    const lines = messages.flatMap((one) => [one, ...(this.random.chance(0.03) ? [{ ...one, delay: '9000d' }] : [])]);
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    const sent = await this.api.ask('POST', `${this.path}/messages`, text, { 'content-type': 'application/x-ndjson' });
    assert.equal(sent.status, 200);
    const answers = sent.text.trim().split('\n').map((line) => JSON.parse(line));
    const stored = answers.filter((one) => one.id);
    assert.deepEqual([answers.length, stored.length], [lines.length, messages.length]);
    this.#did('send as a line', lines.length);
    this.oracle.sent(this.name, this.app.key, messages);
    this.#keep(prefix, messages, stored);
  }

  /** More than the quota of an app allows. */
  async sendTooMany() {
    if (!this.thrifty || this.oracle.pending(this.name) < PENDING_MIN) return;
    const { messages } = this.#make(2, 30, () => ({ delay: '1h' }));
    const { status, json } = await this.api.as(this.thrifty).ask('POST', `${this.path}/messages`, { messages });
    assert.deepEqual([status, json.code], [429, 'quota_exceeded']);
    this.#did('send past a quota', messages.length);
    this.oracle.apps.get('thrifty').refused += messages.length;
  }

  cancelSome() {
    return this.#each(12, async ({ id }) => {
      assert.deepEqual(await this.api.remove(`${this.path}/messages/${id}`), { result: 'cancelled' });
      this.#did('cancel', 1);
      this.oracle.cancelled(this.name, 1);
      this.#late = [...this.#late, id].slice(-20);
      return true;
    });
  }

  /** What is gone stays gone, and counts once. */
  async cancelTooLate() {
    for (const id of this.#late) {
      const { status } = await this.api.ask('DELETE', `${this.path}/messages/${id}`);
      assert.ok([200, 404, 409].includes(status), `${status}`);
      this.#did('cancel again', 1);
    }
    this.#late = [];
  }

  cancelMany() {
    const state = this.random.pick(['scheduled', 'scheduled', 'paused']);
    return this.#many('cancel', { state }, (prefix, gone) => {
      this.oracle.cancelled(this.name, gone.length);
      this.#forget(prefix, new Set(gone));
    });
  }

  rescheduleSome() {
    return this.#each(12, async (one) => {
      // A paused message keeps its place whatever time it is given.
      const comes = !one.paused && this.random.chance(0.5);
      const delay = comes ? this.random.between(1, SOON_MS) : this.random.pick(FAR);
      await this.api.patch(`${this.path}/messages/${one.id}`, { delay });
      this.#did('reschedule', 1);
      if (comes) this.oracle.fired(this.name, 1);
      return comes;
    });
  }

  rescheduleMany() {
    return this.#many('reschedule', { more: { shift: this.random.pick(['1h', '30m']) } }, () => {});
  }

  pauseSome() {
    return this.#each(12, async (one) => {
      one.paused = !one.paused;
      await this.api.patch(`${this.path}/messages/${one.id}`, { paused: one.paused });
      this.#did('pause or resume', 1);
    });
  }

  pauseMany() {
    return this.#many('pause', {}, (_, paused) => paused.forEach((one) => (one.paused = true)));
  }

  resumeMany() {
    return this.#many('resume', { state: 'paused' }, (_, paused) => paused.forEach((one) => (one.paused = false)));
  }

  deliverSome() {
    return this.#each(12, async (one) => {
      if (one.paused) return false;
      await this.api.post(`${this.path}/messages/${one.id}/deliver`);
      this.#did('deliver now', 1);
      this.oracle.fired(this.name, 1);
      return true;
    });
  }

  deliverMany() {
    return this.#many('deliver', {}, (prefix, gone) => {
      this.oracle.fired(this.name, gone.length);
      this.#forget(prefix, new Set(gone));
    });
  }

  /** A message makes way for another under its own id. */
  async replace() {
    if (this.#names.length === 0) return;
    const place = this.random.between(0, this.#names.length - 1);
    const message = { ...this.#names[place], body: `instead, ${this.done}`, delay: '2d', on_conflict: 'replace' };
    const { duplicate } = await this.api.post(`${this.path}/messages`, message);
    assert.ok(!duplicate);
    this.#did('replace', 1);
    this.oracle.sent(this.name, this.app.key, [message]);
    this.oracle.replaced(this.name, 1);
    this.#names.splice(place, 1);
  }

  /** Half messages here and in the next topic; some are decided at once, others later. */
  async transact() {
    const { messages } = this.#make(2, 30, () => (this.random.chance(0.5) ? {} : { delay: '1d' }));
    const halves = messages.map((one, number) => ({ ...one, topic: number % 2 ? this.neighbour : this.name }));
    const { id } = await this.api.post('/v1/transactions', { producer_group: 'mixture', check: { first: '1h' }, messages: halves });
    this.#did('prepare', halves.length);
    for (const half of halves) this.oracle.sent(half.topic, this.app.key, [half]);
    this.#open.push({ id, halves });
    if (this.#open.length > 3) await this.decide();
  }

  async decide() {
    const one = this.#open.shift();
    if (!one) return;
    const commit = this.random.chance(0.6);
    await this.api.post(`/v1/transactions/${one.id}/${commit ? 'commit' : 'rollback'}`);
    this.#did(commit ? 'commit' : 'roll back', one.halves.length);
    for (const { topic, delay } of one.halves) {
      if (!commit) this.oracle.cancelled(topic, 1);
      else if (!delay) this.oracle.fired(topic, 1);
    }
  }

  /** Transactions that nobody has decided. */
  get open() {
    return this.#open.length;
  }

  /** A series that comes to its end, or is cancelled before its first time. */
  async repeat() {
    const message = { body: `again and again, ${this.done}` };
    const count = this.random.between(1, 3);
    const ends = this.random.chance(0.5);
    const repeat = ends ? { every: '1s', count } : { every: '6h' };
    const { id } = await this.api.post(`${this.path}/messages`, { ...message, repeat });
    this.oracle.sent(this.name, this.app.key, [message]);
    if (ends) {
      this.#did('repeat', count);
      this.oracle.followed(this.name, count - 1);
      this.oracle.fired(this.name, count);
    } else {
      await this.api.remove(`${this.path}/messages/${id}`);
      this.#did('repeat and cancel', 1);
      this.oracle.cancelled(this.name, 1);
    }
  }

  consume() {
    return this.consumeOf(this.random.pick(this.groups), this.random.between(50, 1000));
  }

  /** Takes what is there, up to so many: most are acked, the others fail in every way there is. Answers how it went. */
  async consumeOf(group, max) {
    const { path, attempts, stands } = group;
    const { messages } = await this.api.post(`${path}/receive`, { max, wait: stands.lag > stands.in_flight ? '1s' : '0s' });
    this.#did('receive', messages.length);
    const room = HELD_MAX - stands.in_flight;
    this.oracle.given(stands, messages.length);
    const fates = { ack: [], again: [], later: [], last: [], reject: [], held: [] };
    for (const { receipt, attempt } of messages) fates[this.#fate(attempt >= attempts, fates.held.length < room)].push(receipt);
    await this.#settle(`${path}/ack`, fates.ack, {}, 'acked');
    this.oracle.acked(this.name, stands, fates.ack.length);
    await this.#settle(`${path}/nack`, fates.again, { delay: '1ms', error: 'once more' }, 'requeued');
    this.oracle.failed(this.name, stands, fates.again.length, true);
    await this.#settle(`${path}/nack`, fates.later, { error: 'not today' }, 'requeued');
    this.oracle.failed(this.name, stands, fates.later.length, false);
    await this.#settle(`${path}/nack`, fates.last, { delay: '1ms' }, 'dead');
    await this.#settle(`${path}/nack`, fates.reject, { reject: true, error: 'never' }, 'dead');
    this.oracle.died(this.name, stands, fates.last.length + fates.reject.length);
    return fates;
  }

  #fate(isLast, mayHold) {
    const dice = this.random.next();
    if (dice < 0.82) return 'ack';
    if (dice < 0.92) return isLast ? 'last' : 'again';
    if (dice < 0.94) return isLast ? 'last' : 'later';
    if (dice < 0.99) return 'reject';
    return mayHold ? 'held' : 'ack';
  }

  async #settle(path, receipts, more, expected) {
    if (receipts.length === 0) return;
    const { results } = await this.api.post(path, { receipts, ...more });
    assert.deepEqual([...new Set(results.map((one) => one.result))], [expected]);
    assert.equal(results.length, receipts.length);
    this.#did(expected, receipts.length);
  }

  /** Dead letters are moved once they lie where they are kept. */
  async #dead() {
    const group = this.random.pick(this.groups);
    if (group.stands.dead === 0) return {};
    await this.api.until('the dead letters', group.path, ({ dead }) => dead === group.stands.dead);
    return { path: `${group.path}/dead`, stands: group.stands, count: group.stands.dead };
  }

  async redrive() {
    const { path, stands, count } = await this.#dead();
    if (!path) return;
    const { job } = await this.#job(`${path}/redrive`, {});
    const report = await this.api.until('the redrive', `${path}/redrive/${job}?limit=1`, ({ state }) => state !== 'running');
    assert.deepEqual([report.state, report.done], ['done', count]);
    this.#did('redrive', count);
    this.oracle.redriven(stands, count);
  }

  async purge() {
    const { path, stands, count } = await this.#dead();
    if (!path) return;
    const { purged } = await this.api.post(`${path}/purge`, { all: true });
    assert.equal(purged, count);
    this.#did('purge', count);
    this.oracle.purged(stands, count);
  }

  /** Waits until a group has this much to give out. */
  ready(group) {
    return until('what is ready', async () => {
      const { lag, in_flight } = await this.api.get(group.path);
      return lag - in_flight === group.stands.lag - group.stands.in_flight;
    });
  }
}
