// Can somebody decide about transactions, and end series?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { button, dialog, item, refused, row, told, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server, seeded;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  seeded = await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

const transaction = (id) => server.api.get(`/v1/transactions/${id}`);

async function openTransaction(page, id) {
  await visit(page, server, 'transactions');
  await item(page, id).getByTestId('open-transaction').click();
  await page.getByTestId('drawer-transaction').filter({ hasText: id }).waitFor();
}

test('a transaction is committed by hand', () =>
  inPage(browser, server, {}, async (page) => {
    const [id] = seeded.transactions.open;
    await openTransaction(page, id);
    await button(page, 'Commit').click();
    await button(dialog(page), 'Commit').click();
    await told(page, 'Committed');
    assert.equal((await transaction(id)).state, 'committed');
    assert.equal((await server.api.get('/v1/topics/orders/messages/half-1')).state, 'scheduled');
  }));

test('a transaction is rolled back by hand', () =>
  inPage(browser, server, {}, async (page) => {
    const id = seeded.transactions.open[1];
    await openTransaction(page, id);
    await button(page, 'Roll back').click();
    await button(dialog(page), 'Roll back').click();
    await told(page, 'Rolled back');
    assert.equal((await transaction(id)).state, 'rolled_back');
  }));

test('checks that were given up are started again', () =>
  inPage(browser, server, {}, async (page) => {
    const id = seeded.transactions.unresolved;
    await openTransaction(page, id);
    await button(page, 'Check again').click();
    await button(dialog(page), 'Check again').click();
    await told(page, 'Checks started again');
    assert.equal((await transaction(id)).state, 'prepared');
  }));

test('somebody else was faster', () =>
  inPage(browser, server, { refusals: [409] }, async (page) => {
    const id = seeded.transactions.open[2];
    await openTransaction(page, id);
    await server.api.post(`/v1/transactions/${id}/rollback`);
    await button(page, 'Commit').click();
    await button(dialog(page), 'Commit').click();
    await refused(page);
    assert.equal((await transaction(id)).state, 'rolled_back');
  }));

test('a series shows its rule and its next times, and is cancelled', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'series');
    await row(page, '0 9 * * 1-5').waitFor();
    await row(page, 'Asia/Shanghai').waitFor();
    await item(page, 'hourly').getByRole('button', { name: 'Cancel series' }).click();
    await button(dialog(page), 'Cancel series').click();
    await told(page, 'Series cancelled');
    const { series } = await server.api.get('/v1/topics/reports/series');
    assert.deepEqual(series.map((one) => one.own_id), ['daily']);
    await item(page, 'hourly').waitFor({ state: 'detached' });
  }));
