// Can somebody make, change, use and remove topics by hand?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { button, dialog, field, item, open, row, told, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

test('a topic is made, changed and removed', () =>
  inPage(browser, server, { refusals: [404] }, async (page) => {
    await visit(page, server, 'topics');
    await button(page, 'New topic').click();
    await field(dialog(page), 'Name').fill('invoices');
    await field(dialog(page), 'Partitions').fill('3');
    await button(dialog(page), 'Create').click();
    await told(page, 'Topic created');
    assert.equal((await server.api.get('/v1/topics/invoices')).partitions, 3);

    await open(page, server, 'topics/invoices');
    await button(page, 'Edit settings').click();
    await field(dialog(page), 'Retention').fill('30d');
    await field(dialog(page), 'Rate cap').fill('250');
    await button(dialog(page), 'Save').click();
    await told(page, 'Settings changed');
    const changed = await server.api.get('/v1/topics/invoices');
    assert.equal(changed.retention, '30d');
    assert.equal(changed.rate_cap, 250);
    assert.equal(changed.partitions, 3, 'what was not touched stays');

    await button(page, 'Delete').click();
    const sure = button(dialog(page), 'Delete');
    assert.ok(await sure.isDisabled(), 'its name must be typed first');
    await dialog(page).getByRole('textbox').fill('invoices');
    await sure.click();
    await told(page, 'Topic deleted');
    assert.equal((await server.api.ask('GET', '/v1/topics/invoices')).status, 404);
  }));

test('a refusal is shown in words and changes nothing', () =>
  inPage(browser, server, { refusals: [400] }, async (page) => {
    await visit(page, server, 'topics');
    await button(page, 'New topic').click();
    await field(dialog(page), 'Name').fill('bad-settings');
    await field(dialog(page), 'Retention').fill('soon');
    await button(dialog(page), 'Create').click();
    await dialog(page).getByRole('alert').waitFor();
    assert.ok(await dialog(page).isVisible(), 'what was typed is still there');
    assert.equal((await server.api.ask('GET', '/v1/topics/bad-settings')).status, 404);
  }));

test('topics are found by a part of their name', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'topics');
    await item(page, 'payments').waitFor();
    await field(page, 'Name contains').fill('WELCOME');
    await item(page, 'mail.welcome').waitFor();
    await item(page, 'payments').waitFor({ state: 'detached' });
  }));

test('a topic is paused and goes on', () =>
  inPage(browser, server, {}, async (page) => {
    await open(page, server, 'topics/payments');
    await button(page, 'Pause topic').click();
    await button(dialog(page), 'Pause topic').click();
    await button(page, 'Resume topic').waitFor();
    assert.equal((await server.api.get('/v1/topics/payments')).paused, true);
    await button(page, 'Resume topic').click();
    await button(page, 'Pause topic').waitFor();
    assert.equal((await server.api.get('/v1/topics/payments')).paused, false);
  }));

test('a message is sent with all it can have', () =>
  inPage(browser, server, {}, async (page) => {
    await open(page, server, 'topics/orders');
    await page.getByTestId('tab-send').click();
    await field(page, 'Own id').fill('by-hand');
    await field(page, 'Key').fill('shop-9/42');
    await field(page, 'Headers').fill('source: console\nnote: two: colons');
    await field(page, 'Body').fill('{"order": 42}');
    await field(page, 'When').selectOption({ label: 'after a delay' });
    await field(page, 'Delay').fill('90m');
    await button(page, 'Send').click();
    await told(page, 'Scheduled as');
    const sent = await server.api.get('/v1/topics/orders/messages/by-hand');
    assert.equal(sent.key, 'shop-9/42');
    assert.deepEqual(sent.headers, { source: 'console', note: 'two: colons' });
    assert.deepEqual(JSON.parse(sent.body), { order: 42 });
    const wait = Date.parse(sent.due) - Date.now();
    assert.ok(wait > 88 * 60_000 && wait <= 90 * 60_000, `${wait} ms`);
  }));

test('delivered messages are read by partition and offset', () =>
  inPage(browser, server, {}, async (page) => {
    await server.api.put('/v1/topics/single', { partitions: 1 });
    const messages = Array.from({ length: 5 }, (_, number) => ({ key: `delivered-${number}`, body: `body ${number}` }));
    await server.api.post('/v1/topics/single/messages', { messages });
    const path = '/v1/topics/single/partitions/0/messages';
    await server.api.until('the deliveries', `${path}?offset=0`, (found) => found.messages.length === 5);
    await open(page, server, 'topics/single');
    await page.getByTestId('tab-messages').click();
    await row(page, 'delivered-0').waitFor();
    await field(page, 'Offset').fill('3');
    await button(page, 'Go').click();
    await row(page, 'delivered-0').waitFor({ state: 'detached' });
    await row(page, 'delivered-4').waitFor();
  }));
