// Are the figures of the console those of what was really done, also after a restart?
//
// Very many operations of every kind are done over HTTP, by several apps at once, with a restart in order in the middle. An
// oracle adds up what they must have brought about; it asks the broker for nothing. In the end every figure that the pages
// show, and the sums of the trends, must equal it to the last message.
//
// Twenty thousand operations unless PUNCTUAL_CONSOLE_SCALE=1 asks for a million. PUNCTUAL_CONSOLE_SEED repeats the dice of a run.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

import { until } from './support/api.mjs';
import { inPage, launch, screenshot, settled } from './support/browser.mjs';
import { item, open, signIn, visit } from './support/console.mjs';
import { mixture } from './support/mixture.mjs';
import { Oracle } from './support/oracle.mjs';
import { start } from './support/server.mjs';

const IS_LARGE = process.env.PUNCTUAL_CONSOLE_SCALE === '1';
const OPERATIONS = IS_LARGE ? 1_000_000 : 20_000;
const SEED = Number(process.env.PUNCTUAL_CONSOLE_SEED ?? Date.now() % 2 ** 31);
const TOPICS = 8;
/** Topics and groups that the overview lists. */
const LISTED = 8;
/** How long before it they are sent; time enough for the server to end. */
const AHEAD_MS = 3000;
/** What trends tell of everything, of a topic and of an app; `pending` is no sum. */
const COUNTED = ['scheduled', 'fired', 'delivered', 'acked', 'cancelled', 'retried', 'dead'];
const SENT = ['scheduled', 'bytes', 'refused'];

let browser, server, hands, trendsBefore, trendsAfter;
const oracle = new Oracle();

before(async () => {
  [browser, server] = await Promise.all([launch(), start({ auth: true })]);
  hands = await mixture(server.api, oracle, { seed: SEED, count: TOPICS, size: IS_LARGE ? 1 : 0.3 });
});

after(() => Promise.all([browser?.close(), server?.stop()]));

const number = (value) => new Intl.NumberFormat('en-GB').format(value);
/** Everything, each topic and each app, as trends are asked for them. */
const subjects = () => ['', ...[...oracle.topics.keys()].map((name) => `topic=${name}`), ...[...oracle.apps.keys()].map((key) => `app=${key}`)];

/** The points of everything, and of each topic and app. */
async function trends() {
  const found = {};
  for (const subject of subjects()) found[subject] = (await server.api.get(`/v1/trends?${subject}`)).points;
  return found;
}

/** All points of one subject together. */
function summed(points, series) {
  return Object.fromEntries(series.map((name) => [name, points.reduce((sum, point) => sum + (point[name] ?? 0), 0)]));
}

/** Waits until everything that was to fall due has done so; whether it is the right number is for others to say. */
async function quiet() {
  const expected = oracle.whole();
  await until('the last delivery', async () => {
    const { totals } = await server.api.get('/v1/stats');
    return totals.fired >= expected.fired && totals.delivered >= expected.delivered;
  }).catch((error) => console.error(error.message));
}

test('very many operations of every kind, and a restart among them', async (t) => {
  t.diagnostic(`seed ${SEED}`);
  const share = Math.ceil(OPERATIONS / TOPICS);
  const begun = performance.now();
  await Promise.all(hands.map((hand) => hand.work(share / 2)));
  const halfway = oracle.done;

  // Many fall due while nobody is there, and some transactions are decided by the next process.
  const due = Date.now() + AHEAD_MS;
  await Promise.all(hands.map((hand) => hand.sendFor(due)));
  trendsBefore = await trends();
  await server.halt();
  oracle.restarted();
  await until('the time when they are due', () => Date.now() > due);
  await server.launch();
  trendsAfter = await trends();
  hands.forEach((hand) => hand.at(server.api));

  await Promise.all(hands.map((hand) => hand.work(share)));
  await quiet();
  const seconds = (performance.now() - begun) / 1000;
  t.diagnostic(`${oracle.done} operations in ${seconds.toFixed(1)} s, ${halfway} of them before the restart`);
  for (const [kind, count] of oracle.operations) t.diagnostic(`${kind}: ${count}`);
  assert.ok(oracle.done >= OPERATIONS);
  for (const [kind, count] of oracle.operations) assert.ok(count > 0, kind);
});

test('what was counted before the restart is there after it', () => {
  for (const subject of subjects()) {
    assert.ok(trendsBefore[subject].length > 0 || subject === 'app=thrifty', subject);
    for (const point of trendsBefore[subject]) {
      const same = trendsAfter[subject].find((one) => one.at === point.at);
      assert.ok(same, `${subject} ${point.at}`);
      // Messages went on falling due, and those that come round are scheduled anew; nobody did anything else.
      for (const [series, value] of Object.entries(point)) {
        const grows = !subject.startsWith('app=') && ['scheduled', 'fired', 'delivered'].includes(series);
        if (grows) assert.ok(same[series] >= value, `${subject} ${point.at} ${series}`);
        else if (series !== 'pending') assert.equal(same[series], value, `${subject} ${point.at} ${series}`);
      }
    }
  }
});

test('the totals of the broker are those of the oracle', async (t) => {
  const { totals, ...stats } = await server.api.get('/v1/stats');
  const told = { totals, ...Object.fromEntries(Object.keys(oracle.standing()).map((name) => [name, stats[name]])) };
  t.diagnostic(JSON.stringify(told));
  assert.deepEqual(told, { totals: oracle.whole(), ...oracle.standing() });
  const apps = await server.api.all('/v1/apps', 'apps');
  for (const [key, counts] of oracle.apps) {
    t.diagnostic(`${key} ${JSON.stringify(counts)}`);
    assert.deepEqual(apps.find((app) => app.key === key).totals, counts, key);
  }
});

test('trends add up to the totals', async () => {
  const found = await trends();
  const { received, skipped, ...whole } = oracle.whole();
  assert.deepEqual(summed(found[''], COUNTED), whole);
  assert.equal(found[''].at(-1).pending, oracle.standing().pending);
  for (const topic of oracle.topics.keys()) {
    assert.deepEqual(summed(found[`topic=${topic}`], COUNTED), oracle.ofTopic(topic), topic);
    assert.equal(found[`topic=${topic}`].at(-1).pending, oracle.pending(topic), topic);
  }
  for (const [app, counts] of oracle.apps) assert.deepEqual(summed(found[`app=${app}`], SENT), counts, app);
});

const signedIn = (act) =>
  inPage(browser, server, {}, async (page) => {
    await signIn(page, server, server.token);
    await act(page);
  });

/** What the cells of a row show, by their headings. */
const cells = (row) =>
  row.locator('td').evaluateAll((all) => Object.fromEntries(all.map((cell) => [cell.dataset.label, cell.textContent.trim()])));

/** What the figures of a band say in full, by their labels. */
const figures = (scope) =>
  scope.locator('.figure').evaluateAll((all) =>
    Object.fromEntries(all.map((one) => {
      const [label, value] = ['.label', '.value'].map((part) => one.querySelector(part).textContent.trim());
      return [label, one.title || value];
    })),
  );

/** The names and numbers of a list on the overview. */
const ranked = (list) =>
  list.locator('li').evaluateAll((all) =>
    Object.fromEntries(all.map((one) => [...one.children].slice(0, 2).map((part) => part.textContent.trim()))),
  );

/** Holds a row or a band to what the oracle says; other cells may be there. */
function same(shown, expected, what) {
  const concerned = Object.fromEntries(Object.keys(expected).map((label) => [label, shown[label]]));
  const words = Object.fromEntries(Object.entries(expected).map(([label, value]) => [label, number(value)]));
  assert.deepEqual(concerned, words, what);
}

test('the overview shows them, and how many of the last minute succeeded', (t) =>
  signedIn(async (page) => {
    await page.locator('[data-testid=live][data-live-at]').waitFor();
    const [hand] = hands;
    const [group] = hand.groups;
    await hand.sendNow();
    await hand.ready(group);
    const { ack, again, later, last, reject } = await hand.consumeOf(group, 1000);
    const failed = again.length + later.length + last.length + reject.length;
    const words = new Intl.NumberFormat('en-GB', { style: 'percent', maximumFractionDigits: 1 });
    const rate = words.format(ack.length / (ack.length + failed));
    await page.getByTestId('tile-success-value').getByText(rate, { exact: true }).waitFor();
    await quiet();

    const { pending, lag, in_flight, retrying, dead_letters } = oracle.standing();
    const { scheduled } = oracle.whole();
    const apps = oracle.apps.size + 1; // and the built-in one
    // The last figures may be on their way.
    await page.locator(`[data-testid=tile-total][title="${number(scheduled)}"]`).waitFor();
    await page.locator(`[data-testid=tile-dead][title="${number(dead_letters)}"]`).waitFor();
    await page.getByTestId('rates').getByText(`In flight ${number(in_flight)} · Retrying ${number(retrying)}`).waitFor();
    const shown = await figures(page.getByTestId('tiles'));
    same(shown, { 'Messages in all': scheduled, Pending: pending, 'Dead letters': dead_letters, Apps: apps }, 'tiles');
    t.diagnostic(`overview: ${JSON.stringify(shown)}, success ${rate}, lag ${lag}, in flight ${in_flight}, retrying ${retrying}`);

    // Every group has a topic for its dead letters.
    const topics = oracle.topics.size + oracle.groups.size;
    await page.getByTestId('largest-topics').getByText(`${topics} Topics`, { exact: true }).waitFor();
    await page.getByTestId('groups-behind').getByText(`${oracle.groups.size} Groups`, { exact: true }).waitFor();
    const largest = [...oracle.topics.keys()].map((topic) => [topic, oracle.pending(topic)]);
    // Of those that are equally far behind the first by name come first.
    const groups = [...oracle.groups].sort(([one], [other]) => (one < other ? -1 : 1));
    const behind = groups.map(([name, stands]) => [name.split('/').reverse().join(' '), stands.lag]);
    for (const [name, all] of [['largest-topics', largest], ['groups-behind', behind]]) {
      const most = all.filter(([, count]) => count > 0).sort(([, one], [, other]) => other - one).slice(0, LISTED);
      const expected = Object.fromEntries(most.map(([of, count]) => [of, number(count)]));
      // It is asked for again every few seconds.
      const list = page.getByTestId(name);
      await until(name, async () => isDeepStrictEqual(await ranked(list), expected)).catch(() => {});
      assert.deepEqual(await ranked(list), expected, name);
    }
    await screenshot(page, 'totals-overview', 'light');
  }));

test('the topics show them, in the list and one by one', (t) =>
  signedIn(async (page) => {
    await visit(page, server, 'topics');
    await settled(page);
    for (const topic of oracle.topics.keys()) {
      const { scheduled, delivered, cancelled, dead, fired, retried } = oracle.ofTopic(topic);
      const expected = { Pending: oracle.pending(topic), Scheduled: scheduled, Delivered: delivered, Cancelled: cancelled, Dead: dead };
      same(await cells(item(page, topic)), expected, topic);
      t.diagnostic(`${topic}: ${JSON.stringify({ ...expected, Fired: fired, Retried: retried })}`);
    }
    await screenshot(page, 'totals-topics', 'light');
    for (const topic of oracle.topics.keys()) {
      const { scheduled, delivered, cancelled, dead, fired, retried } = oracle.ofTopic(topic);
      await open(page, server, `topics/${topic}`);
      await page.getByRole('heading', { level: 1, name: topic }).waitFor();
      await page.getByTestId('topic-figure-pending').waitFor();
      const expected = { Scheduled: scheduled, Fired: fired, Delivered: delivered, Cancelled: cancelled, Retried: retried, Dead: dead };
      same(await figures(page.getByRole('main')), { Pending: oracle.pending(topic), ...expected }, topic);
    }
  }));

test('the groups show them, in the list and one by one', (t) =>
  signedIn(async (page) => {
    await visit(page, server, 'groups');
    await settled(page);
    for (const [name, stands] of oracle.groups) {
      const expected = { Behind: stands.lag, 'In flight': stands.in_flight, Retrying: stands.retrying, Dead: stands.dead };
      same(await cells(item(page, name)), expected, name);
      t.diagnostic(`${name}: ${JSON.stringify(expected)}`);
    }
    await screenshot(page, 'totals-groups', 'light');
    for (const [name, stands] of oracle.groups) {
      const [topic, group] = name.split('/');
      await open(page, server, `dead?topic=${topic}&group=${group}`);
      await page.getByTestId('dead-total').getByText(number(stands.dead), { exact: true }).waitFor();
    }
  }));

test('the apps show them, and their trends', (t) =>
  signedIn(async (page) => {
    await visit(page, server, 'apps');
    await settled(page);
    for (const [key, counts] of oracle.apps) {
      same(await cells(item(page, key)), { Scheduled: counts.scheduled, Refused: counts.refused }, key);
    }
    for (const [key, { scheduled, bytes, refused }] of oracle.apps) {
      await open(page, server, `apps/${key}`);
      await page.getByRole('heading', { level: 1, name: key }).waitFor();
      await page.getByTestId('app-totals').waitFor();
      const shown = await figures(page.getByTestId('app-totals'));
      same(shown, { Scheduled: scheduled, Bytes: bytes }, key);
      t.diagnostic(`${key}: ${JSON.stringify(shown)}, refused ${refused}`);
      await page.getByTestId('app-trend').getByText(`Total ${number(scheduled)}`).waitFor();
    }
    await screenshot(page, 'totals-app', 'light');
  }));

test('the transactions that are undecided are shown, each', () =>
  signedIn(async (page) => {
    const count = hands.reduce((sum, hand) => sum + hand.open, 0);
    await open(page, server, 'transactions?state=prepared');
    await settled(page);
    assert.ok(count > 0);
    assert.equal(await page.getByTestId('row-transaction').count(), count);
  }));
