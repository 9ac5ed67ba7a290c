// Does foreign text stay text? Every field that takes it holds it, and every page that shows it is
// visited: nothing of it runs, asks anybody, leaves its place, or breaks the page.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { PHONE, WIDE, inPage, launch, overflow, screenshot, settled } from './support/browser.mjs';
import { at, button, dialog, field, item, open, row, visit } from './support/console.mjs';
import { GROUP, HOSTILE, NAMES, TOPIC, sow } from './support/hostile.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  const refused = await sow(server.api);
  assert.ok(refused.length < 5, `almost every field takes almost everything: ${refused}`);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

/** Elements that the console itself never has. */
const PLANTED = [
  'iframe, object, embed, base, main meta, main style, main script',
  '[onerror], [onload], [onfocus], [onmouseover]',
  'a[href^="javascript" i], a[href^="data" i], form[action^="http"]',
].join();

/** Nothing of the text ran, and the page holds its shape. */
async function unharmed(page, where) {
  assert.equal(await page.evaluate(() => window.hit), undefined, `${where}: something ran`);
  assert.ok((await overflow(page)) <= 0, `${where}: wider than the window by ${await overflow(page)}`);
  const planted = await page.evaluate((all) => document.querySelectorAll(all).length, PLANTED);
  assert.equal(planted, 0, `${where}: an element that came from a text`);
  assert.equal(await page.evaluate(() => ({}).polluted), undefined);
}

const PLACES = {
  topics: 'topics',
  topic: `topics/${TOPIC}`,
  messages: `topics/${TOPIC}?tab=messages`,
  pending: `pending?topic=${TOPIC}`,
  paused: `pending?topic=${TOPIC}&state=paused`,
  groups: 'groups',
  group: `groups/${TOPIC}/${GROUP}`,
  dead: `dead?topic=${TOPIC}&group=${GROUP}`,
  series: `series?topic=${TOPIC}`,
  transactions: 'transactions',
  apps: 'apps',
  audit: 'audit',
  overview: '',
};

for (const viewport of [WIDE, PHONE]) {
  for (const [name, place] of Object.entries(PLACES)) {
    test(`${name} at ${viewport.width} pixels`, () =>
      inPage(browser, server, { viewport }, async (page) => {
        await open(page, server, place);
        await settled(page);
        if (!['topic', 'group', 'overview'].includes(name)) await page.locator('[data-row]').first().waitFor();
        await unharmed(page, name);
        await screenshot(page, `hostile-${name}`, 'light');
      }));
  }
}

/** Opens a message by its address. */
async function shownMessage(page, id) {
  await open(page, server, `pending?topic=${TOPIC}&id=${id}`);
  const shown = page.getByTestId('drawer-message').filter({ hasText: id });
  await shown.waitFor();
  return shown;
}

test('each pending message is opened and shown as text', () =>
  inPage(browser, server, {}, async (page) => {
    const pending = await server.api.all(`/v1/topics/${TOPIC}/scheduled`, 'messages');
    assert.ok(pending.length > 2 * Object.keys(HOSTILE).length);
    for (const message of pending) {
      await shownMessage(page, message.id);
      await unharmed(page, message.own_id ?? message.key ?? message.id);
    }
  }));

test('markup is read as it was written', () =>
  inPage(browser, server, {}, async (page) => {
    const texts = ['script', 'image with a handler', 'end of a script', 'entities', 'template', 'database', 'formula'];
    const pending = await server.api.all(`/v1/topics/${TOPIC}/scheduled`, 'messages');
    for (const name of texts) {
      const text = HOSTILE[name];
      const { id } = pending.find((message) => message.key === text);
      const shown = await shownMessage(page, id);
      assert.ok((await shown.innerText()).includes(text), `${name} is seen as ${text}`);
    }
  }));

/** The pending message that has one of the texts as its key. */
async function withKey(name) {
  const pending = await server.api.all(`/v1/topics/${TOPIC}/scheduled`, 'messages');
  return pending.find((message) => message.key === HOSTILE[name]);
}

test('marks that cannot be seen, or turn the text around, are shown by their numbers', () =>
  inPage(browser, server, {}, async (page) => {
    const marks = {
      'bidirectional override': ['invoice\\u202egpj.exe', '\\u2066'],
      'zero width': ['pay\\u200bment', '\\ufeff'],
      'end of a text': ['before\\0after'],
      'terminal escapes': ['\\u001b[31mred'],
      'lines and returns': ['first\\r\\nSet-Cookie', '\\u2028third'],
    };
    for (const [name, seen] of Object.entries(marks)) {
      const { id } = await withKey(name);
      const shown = await shownMessage(page, id);
      const text = (await shown.innerText()).toLowerCase();
      for (const one of seen) assert.ok(text.includes(one.toLowerCase()), `${name} shows ${one}`);
    }
  }));

test('a body of a megabyte is cut, shown whole on demand, and keeps the page quick', (t) =>
  inPage(browser, server, {}, async (page) => {
    const pending = await server.api.all(`/v1/topics/${TOPIC}/scheduled`, 'messages');
    const { id } = pending.find((message) => message.body?.length > 1 << 20);
    const shown = await shownMessage(page, id);
    await at(shown, 'body-cut').waitFor();
    const begun = performance.now();
    await at(shown, 'body-show-all').click();
    await at(shown, 'body-cut').waitFor({ state: 'detached' });
    for (const view of ['hex', 'text']) await at(shown, 'body-view').locator(`[data-value=${view}]`).click();
    const took = performance.now() - begun;
    t.diagnostic(`shown whole, as bytes and as text, in ${took.toFixed(0)} ms`);
    assert.ok(took < 10_000);
    const elements = await page.evaluate(() => document.querySelectorAll('*').length);
    assert.ok(elements < 5_000, `${elements} elements: only what is in view exists`);
    await unharmed(page, 'a megabyte');
  }));

test('each transaction and each series is shown as text', () =>
  inPage(browser, server, {}, async (page) => {
    const transactions = await server.api.all('/v1/transactions', 'transactions');
    assert.ok(transactions.length >= Object.keys(HOSTILE).length - 2);
    for (const { id } of transactions.slice(0, 12)) {
      await open(page, server, `transactions?id=${id}`);
      await at(page, 'drawer-transaction').filter({ hasText: id }).waitFor();
      await unharmed(page, id);
    }
  }));

test('each dead letter is opened and shown as text', () =>
  inPage(browser, server, {}, async (page) => {
    const letters = await server.api.all(`/v1/topics/${TOPIC}/groups/${GROUP}/dead`, 'messages');
    assert.ok(letters.length >= Math.floor(Object.keys(HOSTILE).length / 2));
    await open(page, server, PLACES.dead);
    for (const letter of letters) {
      await item(page, letter.id).getByTestId('open-dead').click();
      await page.getByTestId('drawer-dead').filter({ hasText: letter.id }).waitFor();
      await unharmed(page, letter.last_error ?? letter.id);
      await page.keyboard.press('Escape');
      await page.getByTestId('drawer-dead').waitFor({ state: 'detached' });
    }
  }));

test('every name that is legal has its pages', () =>
  inPage(browser, server, {}, async (page) => {
    for (const name of NAMES) {
      for (const place of [`topics/${name}`, `groups/${TOPIC}/${name.slice(0, 200)}`, `pending?topic=${name}`]) {
        await open(page, server, place);
        await settled(page);
        await unharmed(page, place.slice(0, 60));
      }
    }
  }));

test('texts in the address are texts', () =>
  inPage(browser, server, { refusals: [400, 404, 414, 431] }, async (page) => {
    for (const [name, text] of Object.entries(HOSTILE)) {
      // Longer addresses are cut by the browser itself.
      const part = encodeURIComponent(text.slice(0, 4000).toWellFormed());
      for (const place of [part, `topics/${part}`, `groups/${part}/${part}`, `pending?topic=${TOPIC}&key=${part}`,
        `pending?topic=${part}`, `pending?topic=${TOPIC}&id=${part}`, `apps/${part}`, `dead?topic=${part}&group=${part}`,
        `topics?name=${part}`, `${part}?${part}=${part}`]) {
        await open(page, server, place);
        await settled(page);
        await unharmed(page, `${name} in #/${place.slice(0, 40)}`);
      }
    }
  }));

test('what is typed and refused is shown as text', () =>
  inPage(browser, server, { refusals: [400, 404] }, async (page) => {
    for (const name of ['script', 'image with a handler', 'bidirectional override', 'long and unbroken', 'template']) {
      const text = HOSTILE[name];
      await visit(page, server, 'topics');
      await button(page, 'New topic').click();
      await field(dialog(page), 'Name').fill(text);
      await button(dialog(page), 'Create').click();
      await dialog(page).getByRole('alert').or(page.getByTestId('toast-problem')).first().waitFor();
      await unharmed(page, `a topic called ${name}`);
      await page.keyboard.press('Escape');
    }
  }));

test('what is searched for is text', () =>
  inPage(browser, server, {}, async (page) => {
    await open(page, server, `pending?topic=${TOPIC}`);
    for (const name of ['script', 'attribute, broken out of', 'entities', 'right to left']) {
      await field(page, 'Key').fill(HOSTILE[name]);
      await page.keyboard.press('Enter');
      await row(page, HOSTILE[name].slice(0, 8)).first().waitFor();
      await unharmed(page, `a search for ${name}`);
    }
  }));
