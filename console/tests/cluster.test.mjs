// Does the console hold true for several nodes: who is there, what all of them have, and what Kafka has?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { WIDE, clipped, inPage, launch, overflow, screenshot, settled } from './support/browser.mjs';
import { startCluster } from './support/cluster.mjs';
import { at, button, dialog, field, item, open, row, signIn, signOut, told, view } from './support/console.mjs';

/** What a node counts is known to the others when it has written it and they have read it: ten seconds each. */
const KNOWN_MS = 45_000;
/** A lease, a moment to share out the slots, and the look of a page every five seconds. */
const MOVED_MS = 45_000;
const TALL = { ...WIDE, height: 1500 };
/** Pages of which pictures are taken, by their place. */
const PICTURED = {
  overview: '',
  nodes: 'nodes',
  topics: 'topics',
  topic: 'topics/orders',
  'in-kafka': 'topics/orders?tab=messages',
};

let browser, cluster, lacking;
let one, two, three;

before(async () => {
  [browser, { cluster, lacking }] = await Promise.all([launch(), startCluster()]);
  [one, two, three] = cluster?.nodes ?? [];
});

after(() => Promise.all([browser?.close(), cluster?.stop()]));

/** A test that needs the cluster, signed in at the first node. */
function inCluster(name, options, act) {
  test(name, async (t) => {
    if (lacking) return t.skip(lacking);
    const origins = cluster.nodes.map(({ url }) => url);
    return inPage(browser, one, { viewport: TALL, ...options, origins }, async (page) => {
      await signIn(page, one, one.token);
      await act(page);
    });
  });
}

const nodeRow = (page, node) => page.locator(`[data-testid=row-node][data-row^="${node.name}-"]`);
const slotsOf = async (page, node) => Number(await nodeRow(page, node).locator('[data-label=Slots]').innerText());
const alertRow = (page, state) => page.locator(`[data-row=node_lost][data-state=${state}]`);
const event = (page, word) => page.locator(`[data-testid=row-event][data-event=${word}]`);
const totalOf = (page, count) =>
  at(page, 'tile-total-value').getByText(new Intl.NumberFormat('en').format(count), { exact: true }).waitFor({ timeout: KNOWN_MS });

/** What a chart asked for and was answered, added up. */
async function drawn(page, server, place, asked, figure) {
  const isIt = (response) => response.url().includes(`/v1/trends?${asked}`) && response.url().includes(figure);
  const [answer] = await Promise.all([page.waitForResponse(isIt), open(page, server, place)]);
  const { points } = await answer.json();
  return points.reduce((sum, point) => sum + (point[figure] ?? 0), 0);
}

inCluster('who signs in at one node is known at all of them, until they sign out', { refusals: [401] }, async (page) => {
  const [cookie] = await page.context().cookies();
  for (const node of [two, three]) {
    await open(page, node);
    await view(page, 'overview');
    await at(page, 'session-app').filter({ hasText: 'admin' }).waitFor();
  }
  await signOut(page);
  await field(page, 'Token').waitFor();
  for (const node of [one, two]) {
    await open(page, node);
    await field(page, 'Token').waitFor();
  }
  const kept = { cookie: `${cookie.name}=${cookie.value}` };
  assert.equal((await three.api.as(null).ask('GET', '/v1/topics', undefined, kept)).status, 401, 'it was told so');
});

inCluster('a topic made here is there in Kafka, and what is sent here arrives there', {}, async (page) => {
  // Signed in at the first, and at work on the second.
  await open(page, two, 'topics');
  await button(page, 'New topic').click();
  await field(dialog(page), 'Name').fill('orders');
  await field(dialog(page), 'Partitions').fill('5');
  await button(dialog(page), 'Create').click();
  await told(page, 'Topic created');
  await view(page, 'topic');
  for (const node of cluster.nodes) await node.api.until('the topic', '/v1/topics/orders', (found) => found.partitions === 5);

  await open(page, three, 'topics/orders?tab=send');
  await field(page, 'Key').fill('shop-1');
  await field(page, 'Body').fill('sent by hand');
  await field(page, 'When').selectOption({ label: 'after a delay' });
  await field(page, 'Delay').fill('2s');
  await button(page, 'Send').click();
  await told(page, 'Scheduled as');
  assert.deepEqual(await cluster.messagesInKafka('orders', 1), [['shop-1', 'sent by hand']]);
  assert.equal(await cluster.partitionsInKafka('orders'), 5);
});

inCluster('what only Kafka knows is said so, and is no error', {}, async (page) => {
  await one.api.put('/v1/topics/orders/groups/billing');
  for (const [place, command] of [
    ['topics/orders?tab=messages', '-t orders'],
    ['dead?topic=orders&group=billing', '-t orders.billing.dead'],
    ['dead', '-t TOPIC.GROUP.dead'],
    // A link is not a way to have somebody run something.
    ['dead?topic=%24(reboot)&group=billing', '-t TOPIC'],
  ]) {
    await open(page, one, place);
    await at(page, 'in-kafka').getByText(command).waitFor();
    await settled(page);
    assert.equal(await at(page, 'problem').count(), 0, place);
  }
  await open(page, one, 'groups');
  await item(page, 'orders/billing').waitFor();
  await at(page, 'in-kafka').waitFor();
  await open(page, one, 'groups/orders/billing');
  await at(page, 'in-kafka').getByText('Kafka').waitFor();
  await settled(page);
  assert.equal(await at(page, 'problem').count(), 0);
});

inCluster('figures are those of all nodes, whichever is asked', {}, async (page) => {
  const before = (await one.api.until('what was sent', '/v1/stats', ({ totals }) => totals.scheduled > 0)).totals.scheduled;
  const messages = (count) => ({ messages: Array.from({ length: count }, () => ({ body: 'one of many', delay: '2h' })) });
  await open(page, two);
  await at(page, 'rates').getByText(await cluster.idOf(two)).waitFor();
  await two.api.post('/v1/topics/orders/messages', messages(100));
  await at(page, 'tile-scheduled-value').filter({ hasNotText: /^0\b/ }).waitFor();
  await one.api.post('/v1/topics/orders/messages', messages(7));
  await three.api.post('/v1/topics/orders/messages', messages(5));
  for (const node of cluster.nodes) {
    await open(page, node);
    await totalOf(page, before + 112);
    await at(page, 'tile-pending-value').getByText('112', { exact: true }).waitFor({ timeout: KNOWN_MS });
    await at(page, 'largest-topics').getByText('112').waitFor();
  }
  await open(page, three, 'topics');
  await item(page, 'orders').getByText(`${before + 112}`, { exact: true }).waitFor({ timeout: KNOWN_MS });
});

inCluster('a message is found, moved and cancelled through any node', {}, async (page) => {
  await one.api.post('/v1/topics/orders/messages', { id: 'anywhere', key: 'shop-7', body: 'wait', delay: '1h' });
  const opened = async (node) => {
    await open(page, node, 'pending?topic=orders&key=shop-7');
    await row(page, 'anywhere').getByTestId('open-message').click();
    await at(page, 'drawer-message').filter({ hasText: 'anywhere' }).waitFor();
  };
  await opened(two);
  await button(page, 'Reschedule').click();
  await field(dialog(page), 'Delay').fill('5h');
  await button(dialog(page), 'Reschedule').click();
  await told(page, 'Message rescheduled');
  const { due } = await three.api.get('/v1/topics/orders/messages/anywhere');
  assert.ok(Date.parse(due) - Date.now() > 4.9 * 3_600_000, due);
  await opened(three);
  await button(page, 'Cancel message').click();
  await button(dialog(page), 'Cancel message').click();
  await told(page, 'Message cancelled');
  assert.equal((await one.api.get('/v1/topics/orders/messages/anywhere')).state, 'cancelled');
});

for (const colorScheme of ['light', 'dark']) {
  inCluster(`the pages hold their shape, ${colorScheme}`, { colorScheme }, async (page) => {
    for (const [name, place] of Object.entries(PICTURED)) {
      await open(page, two, place);
      await settled(page);
      if (name === 'nodes') await at(page, 'slots-show').click();
      await settled(page);
      await screenshot(page, `cluster-${name}`, colorScheme);
      assert.ok((await overflow(page)) <= 0, name);
      assert.deepEqual(await clipped(page), [], name);
    }
  });
}

inCluster('a node that is killed is shown as lost, its slots move, and it comes back', {}, async (page) => {
  const gone = await cluster.idOf(three);
  await open(page, one, 'nodes');
  await at(page, 'slots-show').click();
  for (const node of cluster.nodes) {
    await nodeRow(page, node).waitFor();
    assert.equal(await slotsOf(page, node), 4);
    assert.match(await nodeRow(page, node).locator('[data-label=Term]').innerText(), /[1-9]/);
  }
  assert.equal(await at(page, 'node-table').getByText('leader', { exact: true }).count(), 1);
  assert.equal(await at(page, 'slots-map').locator('.map .square').count(), 12);
  await at(page, 'node-entries-value').filter({ hasText: /\d/ }).waitFor();
  await at(page, 'node-memory-value').filter({ hasText: 'MB' }).waitFor();
  await event(page, 'slots').first().waitFor();

  await three.kill();
  await page.locator(`[data-row="${gone}"][data-state=lost]`).waitFor({ timeout: MOVED_MS });
  await event(page, 'lost').filter({ hasText: gone }).waitFor();
  await cluster.whole([one, two]);
  const six = nodeRow(page, two).locator('[data-label=Slots]').filter({ hasText: /^6$/ });
  await six.waitFor({ timeout: MOVED_MS });
  assert.equal(await slotsOf(page, one), 6);
  assert.equal(await slotsOf(page, three), 0);
  // The newest event: what it had has other owners.
  await at(page, 'row-event').first().filter({ hasText: '4 slots have other owners' }).waitFor();
  await settled(page);
  await screenshot(page, 'cluster-lost', 'light');

  await open(page, two, 'alerts');
  await alertRow(page, 'firing').filter({ hasText: gone }).waitFor({ timeout: MOVED_MS });
  await open(page, two);
  await at(page, 'firing-alerts').getByText('node_lost').waitFor();

  await three.launch(new URL(three.url).port);
  await cluster.whole();
  await open(page, two, 'alerts');
  await alertRow(page, 'ok').waitFor({ timeout: MOVED_MS });
  await at(page, 'row-alert-event').filter({ hasText: 'node_lost' }).filter({ hasText: 'resolved' }).waitFor();
  await open(page, two, 'nodes');
  await nodeRow(page, three).waitFor();
  await page.locator(`[data-row="${gone}"]`).waitFor({ state: 'detached', timeout: MOVED_MS });
  assert.equal(await slotsOf(page, three), 4);
});

inCluster('totals and trends are still there when every node was restarted', {}, async (page) => {
  const read = async (node) => ({
    whole: await drawn(page, node, '', 'from=', 'scheduled'),
    topic: await drawn(page, node, 'topics/orders', 'topic=orders', 'scheduled'),
    app: await drawn(page, node, 'apps/admin', 'app=admin', 'scheduled'),
    node: await drawn(page, node, `nodes?node=${await cluster.idOf(two)}`, 'node=node2', 'scheduled'),
  });
  const { totals } = await one.api.get('/v1/stats');
  await two.api.until('all that was counted', '/v1/stats', (found) => found.totals.scheduled === totals.scheduled);
  const before = await read(two);
  assert.equal(before.whole, totals.scheduled);
  assert.equal(before.topic, totals.scheduled, 'there is one topic');
  assert.ok(before.app > 0 && before.node >= 100, JSON.stringify(before));
  await page.goto('about:blank');
  await Promise.all(cluster.nodes.map((node) => node.halt()));
  await Promise.all(cluster.nodes.map((node) => node.launch(new URL(node.url).port)));
  await cluster.whole();
  assert.deepEqual(await read(two), before);
  for (const node of cluster.nodes) {
    await open(page, node);
    await totalOf(page, totals.scheduled);
  }
});
