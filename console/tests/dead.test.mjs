// Can somebody look at dead letters, mend them, send them again, and throw them away?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { button, dialog, field, item, row, told, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

const GROUP = '/v1/topics/orders/groups/billing';
let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

const letters = () => server.api.all(`${GROUP}/dead`, 'messages');

async function openLetter(page, { id }) {
  await visit(page, server, 'dead');
  await item(page, id).getByTestId('open-dead').click();
  await page.getByTestId('drawer-dead').waitFor();
}

test('dead letters are shown with why and since when', () =>
  inPage(browser, server, {}, async (page) => {
    const [letter] = await letters();
    await openLetter(page, letter);
    const shown = page.getByTestId('drawer-dead');
    for (const text of [letter.id, letter.key, 'no such account', 'rejected']) await shown.getByText(text).first().waitFor();
  }));

test('a letter is sent again', () =>
  inPage(browser, server, {}, async (page) => {
    const [letter] = await letters();
    await openLetter(page, letter);
    await button(page, 'Redrive').click();
    await button(dialog(page), 'Redrive').click();
    await told(page, 'Redriven');
    await server.api.until('the redrive', `${GROUP}/dead`, (page) => !page.messages.some((one) => one.id === letter.id));
  }));

test('a letter is mended and sent again', () =>
  inPage(browser, server, {}, async (page) => {
    const [letter] = await letters();
    await openLetter(page, letter);
    await button(page, 'Edit and redrive').click();
    await field(dialog(page), 'Body').fill('{"paid":"mended"}');
    await button(dialog(page), 'Redrive').click();
    await told(page, 'Redriven');
    await server.api.until('the redrive', `${GROUP}/dead`, (page) => !page.messages.some((one) => one.id === letter.id));
    const mended = await received(letter.id);
    assert.deepEqual(JSON.parse(mended.body), { paid: 'mended' });
  }));

/** Receives until the message comes. */
async function received(id) {
  for (;;) {
    const { messages } = await server.api.post(`${GROUP}/receive`, { max: 100, wait: '10s', lease: '1h' });
    assert.ok(messages.length > 0, 'it comes');
    const found = messages.find((one) => one.id === id);
    if (found) return found;
  }
}

test('all that match are sent again, some a second', () =>
  inPage(browser, server, {}, async (page) => {
    const before = await letters();
    assert.ok(before.length >= 2);
    const [{ key }] = before;
    await visit(page, server, 'dead');
    await field(page, 'Key').fill(key);
    await page.keyboard.press('Enter');
    await row(page, before[1].key).waitFor({ state: 'detached' });
    await button(page, 'Redrive all that match').click();
    await dialog(page).getByText('1 dead letters match').waitFor();
    await field(dialog(page), 'Messages a second').fill('50');
    await dialog(page).getByRole('button', { name: 'Redrive 1' }).click();
    await server.api.until('the redrive', `${GROUP}/dead`, (page) => page.messages.length === before.length - 1);
  }));

test('the rest is thrown away when that is confirmed', () =>
  inPage(browser, server, {}, async (page) => {
    const before = await letters();
    assert.ok(before.length > 0);
    await visit(page, server, 'dead');
    await row(page, before[0].key).waitFor();
    await button(page, 'Purge all that match').click();
    await dialog(page).getByRole('button', { name: `Purge ${before.length}` }).waitFor();
    assert.equal((await letters()).length, before.length, 'counting throws nothing away');
    await dialog(page).getByRole('button', { name: `Purge ${before.length}` }).click();
    await told(page, `${before.length} purged`);
    assert.equal((await letters()).length, 0);
    await page.getByText('No dead letters').waitFor();
  }));
