// Can somebody look after consumer groups: make them, change them, stop them, put them elsewhere?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { button, dialog, field, item, open, told, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

test('the standing of each group is shown', () =>
  inPage(browser, server, {}, async (page) => {
    const group = await server.api.get('/v1/topics/orders/groups/billing');
    const single = [];
    page.on('request', (request) => /\/groups\/./.test(request.url()) && single.push(request.url()));
    await visit(page, server, 'groups');
    const line = await item(page, 'orders/billing').innerText();
    assert.deepEqual(line.split(/\s+/).slice(2, 6).map(Number), [group.lag, group.in_flight, group.retrying, group.dead], line);
    await field(page, 'Name contains').fill('ledg');
    await item(page, 'payments/ledger').waitFor();
    await item(page, 'orders/billing').waitFor({ state: 'detached' });
    assert.deepEqual(single, [], 'the list tells all of them');
    await visit(page, server, 'group');
    for (const [name, count] of [['lag', group.lag], ['in-flight', group.in_flight], ['retrying', group.retrying], ['dead', group.dead]]) {
      await page.getByTestId(`group-${name}`).filter({ hasText: new RegExp(`\\b${count}\\b`) }).waitFor();
    }
  }));

test('a group is made and changed', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'groups');
    await button(page, 'New group').click();
    await field(dialog(page), 'Topic').fill('payments');
    await field(dialog(page), 'Name').fill('mailer');
    await field(dialog(page), 'Lease').fill('90s');
    await button(dialog(page), 'Create').click();
    await told(page, 'Group created');
    const path = '/v1/topics/payments/groups/mailer';
    assert.equal((await server.api.get(path)).lease, '1m30s');

    await open(page, server, 'groups/payments/mailer');
    await button(page, 'Edit settings').click();
    await field(dialog(page), 'Waits').fill('5s 1m 10m');
    await field(dialog(page), 'Attempts').fill('3');
    await button(dialog(page), 'Save').click();
    await told(page, 'Settings changed');
    const changed = await server.api.get(path);
    assert.deepEqual(changed.retry, { ladder: ['5s', '1m', '10m'] });
    assert.equal(changed.max_attempts, 3);
    assert.equal(changed.lease, '1m30s', 'what was not touched stays');
  }));

test('a group is paused and goes on', () =>
  inPage(browser, server, {}, async (page) => {
    const path = '/v1/topics/orders/groups/billing';
    await visit(page, server, 'group');
    await button(page, 'Pause').click();
    await button(dialog(page), 'Pause').click();
    await told(page, 'Group paused');
    assert.equal((await server.api.get(path)).paused, true);
    await button(page, 'Resume').click();
    await told(page, 'Group resumed');
    assert.equal((await server.api.get(path)).paused, false);
  }));

test('a group is put elsewhere', () =>
  inPage(browser, server, {}, async (page) => {
    const path = '/v1/topics/orders/groups/audit';
    assert.ok((await server.api.get(path)).lag > 0);
    await open(page, server, 'groups/orders/audit');
    await button(page, 'Reset').click();
    await field(dialog(page), 'To').selectOption({ label: 'the end' });
    await button(dialog(page), 'Reset').click();
    await told(page, 'Group put elsewhere');
    await server.api.until('the end', path, (found) => found.lag === 0);
  }));

test('a group is drained into another topic', () =>
  inPage(browser, server, {}, async (page) => {
    await server.api.put('/v1/topics/slow');
    const path = '/v1/topics/orders/groups/billing';
    const { lag, in_flight: held } = await server.api.get(path);
    assert.ok(lag > 0);
    await visit(page, server, 'group');
    await button(page, 'Drain').click();
    await field(dialog(page), 'To topic').fill('slow');
    await button(dialog(page), 'Drain').click();
    await server.api.until('the drain', path, (found) => found.lag <= held);
    const slow = await server.api.get('/v1/topics/slow');
    assert.ok(slow.partitions > 0);
  }));

test('a group is deleted when its name is typed', () =>
  inPage(browser, server, { refusals: [404] }, async (page) => {
    await server.api.put('/v1/topics/orders/groups/old');
    await open(page, server, 'groups/orders/old');
    await button(page, 'Delete').click();
    await dialog(page).getByRole('textbox').fill('old');
    await button(dialog(page), 'Delete').click();
    await told(page, 'Group deleted');
    assert.equal((await server.api.ask('GET', '/v1/topics/orders/groups/old')).status, 404);
  }));
