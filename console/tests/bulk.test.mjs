// Can somebody change many messages at once, and see first how many that are?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { button, dialog, field, open, row } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

const matching = (query) => server.api.all(`/v1/topics/orders/scheduled?${query}`, 'messages');

/** Filters by a prefix, asks for a bulk change, and waits for its count. */
async function ask(page, prefix, name) {
  await open(page, server, 'pending?topic=orders');
  await field(page, 'Key prefix').fill(prefix);
  await page.keyboard.press('Enter');
  await row(page, 'shop-0/order-0').first().waitFor(prefix.startsWith('shop-0') ? {} : { state: 'detached' });
  await button(page, name).click();
  await dialog(page).getByText(/\d+ messages match/).waitFor();
}

test('how many match is counted first, and nothing is changed by that', () =>
  inPage(browser, server, {}, async (page) => {
    const before = await matching('key_prefix=shop-1/');
    await ask(page, 'shop-1/', 'Cancel all');
    await dialog(page).getByText(`${before.length} messages match`).waitFor();
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });
    assert.equal((await matching('key_prefix=shop-1/')).length, before.length);
  }));

for (const [name, prefix, state] of [['Pause all', 'shop-2/', 'paused'], ['Resume all', 'shop-3/', 'scheduled']]) {
  test(`${name.toLowerCase()} that match`, () =>
    inPage(browser, server, {}, async (page) => {
      const before = await matching(`key_prefix=${prefix}`);
      await ask(page, prefix, name);
      await dialog(page).getByRole('button', { name }).click();
      await dialog(page).getByText(/\d+ done, 0 failed/).waitFor();
      const after = [...(await matching(`key_prefix=${prefix}`)), ...(await matching(`key_prefix=${prefix}&state=paused`))];
      assert.ok(after.length >= before.length);
      for (const one of after) assert.equal(one.state, state, one.own_id);
    }));
}

test('all that match are rescheduled', () =>
  inPage(browser, server, {}, async (page) => {
    const before = await matching('key_prefix=shop-4/');
    await ask(page, 'shop-4/', 'Reschedule all');
    await field(dialog(page), 'Shift by').fill('2h');
    await dialog(page).getByRole('button', { name: 'Reschedule all' }).click();
    await dialog(page).getByText(/\d+ done, 0 failed/).waitFor();
    const after = new Map((await matching('key_prefix=shop-4/')).map((one) => [one.id, one]));
    for (const one of before) {
      if (one.state !== 'scheduled') continue;
      assert.equal(Date.parse(after.get(one.id).due) - Date.parse(one.due), 7_200_000);
    }
  }));

test('all that match are delivered', () =>
  inPage(browser, server, {}, async (page) => {
    await ask(page, 'shop-5/', 'Deliver all now');
    await dialog(page).getByRole('button', { name: 'Deliver all now' }).click();
    await dialog(page).getByText(/\d+ done, 0 failed/).waitFor();
    await server.api.until('the deliveries', '/v1/topics/orders/scheduled?key_prefix=shop-5/', (found) => found.messages.length === 0);
  }));

test('all that match are cancelled, and no other', () =>
  inPage(browser, server, {}, async (page) => {
    const others = await matching('key_prefix=shop-1/');
    await ask(page, 'shop-6/', 'Cancel all');
    await dialog(page).getByRole('button', { name: 'Cancel all' }).click();
    await dialog(page).getByText(/\d+ done, 0 failed/).waitFor();
    assert.equal((await matching('key_prefix=shop-6/')).length, 0);
    assert.equal((await matching('key_prefix=shop-1/')).length, others.length);
    const { entries } = await server.api.get('/v1/audit?limit=5');
    assert.ok(entries.some((entry) => JSON.stringify(entry).includes('shop-6/')), 'it is in the record');
  }));
