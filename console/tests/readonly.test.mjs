// Does somebody who may only look see only what is to be looked at, whatever they call by hand?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch, settled } from './support/browser.mjs';
import { PAGES, open, signIn } from './support/console.mjs';
import { onlooker, shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

/** What changes something, by the words on its buttons. */
const ACTIONS = [
  'New topic', 'Edit settings', 'Delete', 'Pause topic', 'Resume topic', 'Send', 'Reschedule', 'Pause', 'Resume', 'Deliver now',
  'Cancel message', 'Edit',
  'Cancel all', 'Reschedule all', 'Pause all', 'Resume all', 'Deliver all now', 'New group', 'Reset', 'Drain', 'Redrive', 'Edit and redrive',
  'Redrive all that match', 'Purge all that match', 'Commit', 'Roll back', 'Check again', 'Cancel series', 'New app',
  'Rotate secret', 'Disable', 'Enable', 'Send a test', 'Save', 'Create',
];

let browser, server, token, seeded;

before(async () => {
  [browser, server] = await Promise.all([launch(), start({ auth: true })]);
  seeded = await shop(server.api);
  token = await onlooker(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

/** Words of buttons in the content, in menus and on tabs. */
function words(page) {
  const pressed = ['button', '[data-testid^=tab-]', '[role=button]', '[role=menuitem]', '[role=tab]', 'input[type=submit]'];
  const seen = pressed.map((one) => `${one}:visible`).join();
  return page.getByRole('main').locator(seen)
    .evaluateAll((found) => found.map((one) => (one.getAttribute('aria-label') ?? one.textContent).trim()));
}

/** Every place with something that could be acted upon, and what has to be clicked there to see it. */
function places() {
  return {
    ...Object.fromEntries(Object.entries(PAGES).map(([name, [place]]) => [name, [place]])),
    'topic, messages': ['topics/orders?tab=messages'],
    message: ['pending?topic=orders', 'open-message'],
    paused: ['pending?topic=orders&state=paused', 'open-message'],
    letter: ['dead?topic=orders&group=billing', 'open-dead'],
    transaction: [`transactions?id=${seeded.transactions.open[0]}`],
    unresolved: [`transactions?id=${seeded.transactions.unresolved}`],
  };
}

/** Goes to one of them, from another page, as by a link. */
async function see(page, [place, opener]) {
  await open(page, server, 'nodes');
  await settled(page);
  await open(page, server, place);
  await settled(page);
  if (opener) await page.getByTestId(opener).first().click();
  await settled(page);
}

test('an onlooker sees no action on any page', () =>
  inPage(browser, server, { refusals: [403] }, async (page) => {
    await signIn(page, server, token);
    for (const [name, place] of Object.entries(places())) {
      await see(page, place);
      const shown = (await words(page)).filter((word) => ACTIONS.includes(word));
      assert.deepEqual(shown, [], name);
    }
  }));

test('the same pages have actions for an administrator', () =>
  inPage(browser, server, {}, async (page) => {
    await signIn(page, server, server.token);
    const without = ['overview', 'nodes', 'audit', 'transactions', 'dead-groups', 'topic, messages'];
    const counts = {};
    for (const [name, place] of Object.entries(places())) {
      await see(page, place);
      const shown = (await words(page)).filter((word) => ACTIONS.includes(word));
      counts[name] = shown.length;
      assert.ok(shown.length > 0 || without.includes(name), `${name} has something to do`);
    }
    assert.ok(counts.message > counts.pending, 'a message that is opened has its own');
  }));

test('the calls behind the actions are refused, by cookie and by token', async () => {
  const session = await server.api.as(null).ask('POST', '/v1/session', { token });
  const cookie = session.headers.getSetCookie()[0].split(';')[0];
  const headers = { cookie, 'x-punctual-csrf': session.json.csrf };
  const group = '/v1/topics/orders/groups/billing';
  const [transaction] = seeded.transactions.open;
  const calls = [
    ['PUT', '/v1/topics/new', {}], ['PATCH', '/v1/topics/orders', { jitter: '1s' }], ['DELETE', '/v1/topics/orders'],
    ['POST', '/v1/topics/orders/messages', { body: 'x' }], ['PATCH', '/v1/topics/orders/messages/close-9', { paused: true }],
    ['DELETE', '/v1/topics/orders/messages/close-9'], ['POST', '/v1/topics/orders/messages/close-9/deliver', {}],
    ['POST', '/v1/topics/orders/scheduled/cancel', { all: true }], ['POST', '/v1/topics/orders/scheduled/pause', { all: true }],
    ['POST', '/v1/topics/orders/scheduled/resume', { all: true }], ['POST', '/v1/topics/orders/scheduled/deliver', { all: true }],
    ['POST', '/v1/topics/orders/scheduled/reschedule', { all: true, shift: '1h' }], ['PUT', `${group}new`, {}], ['PATCH', group, { lease: '5s' }],
    ['DELETE', group], ['POST', `${group}/pause`, {}], ['POST', `${group}/resume`, {}], ['POST', `${group}/reset`, { to: 'latest' }],
    ['POST', `${group}/drain`, { to: 'payments' }], ['POST', `${group}/dead/redrive`, {}], ['POST', `${group}/dead/purge`, { all: true }],
    ['POST', '/v1/apps', { key: 'mine' }], ['POST', '/v1/apps/orders-service/rotate', {}], ['DELETE', '/v1/apps/orders-service'],
    ['POST', '/v1/apps/orders-service/disable', {}], ['PATCH', '/v1/apps/onlooker', { permissions: [] }], ['POST', '/v1/alerts/test', {}],
    ['GET', '/v1/apps'], ['GET', '/v1/audit'], ['PUT', '/v1/levels', { levels: [] }],
  ];
  const found = [['POST', `/v1/transactions/${transaction}/commit`], ['POST', `/v1/transactions/${transaction}/rollback`],
    ['POST', `/v1/transactions/${seeded.transactions.unresolved}/resume`]];
  for (const [method, path, body] of [...calls, ...found]) {
    for (const [who, answer] of [
      ['cookie', await server.api.as(null).ask(method, path, body, headers)],
      ['token', await server.api.as(token).ask(method, path, body)],
    ]) {
      assert.ok([403, 404].includes(answer.status), `${method} ${path} by ${who}: ${answer.status} ${answer.text}`);
      assert.notEqual(answer.json.code, 'csrf');
      assert.notEqual(answer.json.code, 'route_not_found');
    }
  }
  assert.equal((await server.api.get('/v1/topics/orders/messages/close-9')).version, 1);
  assert.equal((await server.api.get(`/v1/transactions/${transaction}`)).state, 'prepared');
});
