// Can somebody find pending messages by each of their fields, and do to one what can be done?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { button, dialog, field, open, refused, row, told, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

const message = (id) => server.api.get(`/v1/topics/orders/messages/${id}`);

/** Opens one message, found by its own id. */
async function openMessage(page, id) {
  await open(page, server, 'pending?topic=orders');
  await field(page, 'Id or own id').fill(id);
  await page.keyboard.press('Enter');
  await row(page, id).getByTestId('open-message').click();
  await page.getByTestId('drawer-message').filter({ hasText: id }).waitFor();
}

test('pending messages are found by key, prefix, state, time and id', () =>
  inPage(browser, server, { refusals: [404] }, async (page) => {
    const found = (text) => row(page, text).first().waitFor();
    const gone = (text) => row(page, text).first().waitFor({ state: 'detached' });
    const search = async (label, text) => {
      await visit(page, server, 'pending');
      await found('shop-0/order-0');
      await field(page, label).fill(text);
      await page.keyboard.press('Enter');
    };
    await search('Key', 'shop-5/order-5');
    await gone('shop-0/order-0');
    await found('shop-5/order-5');

    await search('Key prefix', 'shop-2/');
    await gone('shop-0/order-0');
    await found('shop-2/order-2');
    await found('shop-2/order-9');

    const first = (await message('close-50')).due;
    await search('Due from', first.slice(0, 16));
    await gone('shop-0/order-0');
    await found('shop-1/order-50');

    await visit(page, server, 'pending');
    await field(page, 'State').selectOption({ label: 'paused' });
    await button(page, 'Apply').click();
    await gone('shop-0/order-0');
    await found('shop-3/order-3');

    await search('Id or own id', 'close-77');
    await row(page, 'shop-0/order-77').waitFor();
    assert.equal(await page.getByTestId('row-message').count(), 1);
  }));

test('pages go forth and back', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'pending');
    await row(page, 'shop-0/order-0').first().waitFor();
    await button(page, 'Next').click();
    await row(page, 'shop-0/order-0').first().waitFor({ state: 'detached' });
    await row(page, 'shop-0/order-119').or(row(page, 'order-60')).first().waitFor();
    await button(page, 'Previous').click();
    await row(page, 'shop-0/order-0').first().waitFor();
  }));

test('a message is shown whole', () =>
  inPage(browser, server, {}, async (page) => {
    await openMessage(page, 'close-12');
    const shown = page.getByTestId('drawer-message');
    for (const text of ['close-12', 'shop-5/order-12', 'trace-id', 't-12', 'close if it is not paid']) {
      await shown.getByText(text).first().waitFor();
    }
  }));

test('a message is rescheduled', () =>
  inPage(browser, server, {}, async (page) => {
    await openMessage(page, 'close-20');
    await button(page, 'Reschedule').click();
    await field(dialog(page), 'Delay').fill('5h');
    await button(dialog(page), 'Reschedule').click();
    await told(page, 'Message rescheduled');
    const wait = Date.parse((await message('close-20')).due) - Date.now();
    assert.ok(wait > 4.9 * 3_600_000 && wait <= 5 * 3_600_000, `${wait} ms`);
  }));

test('a message is paused and goes on', () =>
  inPage(browser, server, {}, async (page) => {
    await openMessage(page, 'close-21');
    await button(page, 'Pause').click();
    await told(page, 'Message paused');
    assert.equal((await message('close-21')).state, 'paused');
    await button(page, 'Resume').click();
    await told(page, 'Message resumed');
    assert.equal((await message('close-21')).state, 'scheduled');
  }));

test('the content of a message is edited', () =>
  inPage(browser, server, {}, async (page) => {
    await openMessage(page, 'close-22');
    await button(page, 'Edit').click();
    await field(dialog(page), 'Body').fill('{"order":"mended"}');
    await button(dialog(page), 'Save').click();
    await told(page, 'Message changed');
    assert.deepEqual(JSON.parse((await message('close-22')).body), { order: 'mended' });
  }));

test('a message is delivered now', () =>
  inPage(browser, server, {}, async (page) => {
    await openMessage(page, 'close-23');
    await button(page, 'Deliver now').click();
    await button(dialog(page), 'Deliver now').click();
    await told(page, 'Message delivered');
    await server.api.until('the delivery', '/v1/topics/orders/messages/close-23', (found) => found.state === 'delivered');
  }));

test('a message is cancelled, and not by a slip', () =>
  inPage(browser, server, {}, async (page) => {
    await openMessage(page, 'close-24');
    await button(page, 'Cancel message').click();
    await page.getByTestId('dialog-question').waitFor();
    await page.keyboard.press('Escape');
    await page.getByTestId('dialog-question').waitFor({ state: 'detached' });
    assert.equal((await message('close-24')).state, 'scheduled', 'Escape takes it back');
    await button(page, 'Cancel message').click();
    await button(dialog(page), 'Cancel message').click();
    await told(page, 'Message cancelled');
    assert.equal((await message('close-24')).state, 'cancelled');
  }));

test('whoever comes too late is told so', () =>
  inPage(browser, server, { refusals: [409, 412] }, async (page) => {
    await openMessage(page, 'close-25');
    await button(page, 'Pause').waitFor();
    await server.api.remove('/v1/topics/orders/messages/close-25');
    await button(page, 'Pause').click();
    await refused(page);
    assert.equal((await message('close-25')).state, 'cancelled');
  }));
