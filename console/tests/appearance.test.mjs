// Does every page hold its shape, in both themes, both languages, and on a phone? Pictures are saved.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';

import { PHONE, WIDE, clipped, inPage, launch, overflow, screenshot, settled } from './support/browser.mjs';
import { PAGES, at, field, open, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server, seeded;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  seeded = await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

/** Pages, and what can be opened upon them. */
function places() {
  return {
    ...Object.fromEntries(Object.entries(PAGES).map(([name, [place]]) => [name, place])),
    'topic-messages': 'topics/orders?tab=messages',
    'topic-send': 'topics/orders?tab=send',
    transaction: `transactions?id=${seeded.transactions.unresolved}`,
    'pending-nothing': 'pending?topic=orders&key=nobody',
    'no-such-page': 'nothing/here',
  };
}

/** What is opened by a click: where, on what, and what it is then. */
const OPENED = {
  message: ['pending?topic=orders', 'open-message', 'drawer-message'],
  letter: ['dead?topic=orders&group=billing', 'open-dead', 'drawer-dead'],
  'dialog-topic': ['topics', 'topic-create', 'dialog-topic'],
  'dialog-group': ['groups', 'group-create', 'dialog-group'],
  'dialog-app': ['apps', 'app-create', 'dialog-app'],
  'dialog-bulk': ['pending?topic=orders&key_prefix=shop-1', 'bulk-reschedule', 'dialog-bulk'],
  'dialog-redrive': ['dead?topic=orders&group=billing', 'dead-redrive-all', 'dialog-redrive'],
  'dialog-reset': ['groups/orders/billing', 'group-reset', 'dialog-reset'],
  'dialog-delete': ['topics/orders', 'topic-delete', 'dialog-question'],
};

for (const [colorScheme, viewport] of [['light', WIDE], ['dark', WIDE], ['light', PHONE], ['dark', PHONE]]) {
  test(`every page fits ${viewport.width} pixels, ${colorScheme}`, () =>
    inPage(browser, server, { colorScheme, viewport }, async (page) => {
      const wide = [];
      for (const [name, place] of Object.entries(places())) {
        await open(page, server, place);
        await settled(page);
        await screenshot(page, name, colorScheme);
        if ((await overflow(page)) > 0) wide.push(`${name} by ${await overflow(page)} pixels`);
        for (const one of await clipped(page)) wide.push(`${name}: ${one}`);
      }
      assert.deepEqual(wide, [], 'these scroll sideways, or are cut off');
    }));

  test(`everything that opens fits ${viewport.width} pixels, ${colorScheme}`, () =>
    inPage(browser, server, { colorScheme, viewport }, async (page) => {
      for (const [name, [place, opener, opened]] of Object.entries(OPENED)) {
        await open(page, server, place);
        await settled(page);
        await at(page, opener).first().click();
        await at(page, opened).waitFor();
        await settled(page);
        await screenshot(page, name, colorScheme);
        assert.ok((await overflow(page)) <= 0, `${name} scrolls sideways`);
        assert.deepEqual(await clipped(page), [], name);
        const box = await at(page, opened).boundingBox();
        assert.ok(box.x >= 0 && box.x + box.width <= viewport.width, `${name} is in the window`);
        await page.keyboard.press('Escape');
        await at(page, opened).waitFor({ state: 'detached' });
      }
    }));
}

/** What the console says in English and not in Chinese, word for word. */
async function english() {
  const words = async (language) => {
    const source = await readFile(new URL(`../src/i18n/${language}.ts`, import.meta.url), 'utf8');
    return [...source.matchAll(/: '([^'{]+)'/g)].map(([, text]) => text);
  };
  const chinese = new Set(await words('zh'));
  return (await words('en')).filter((text) => text.length > 2 && !chinese.has(text));
}

/** Texts that are seen, one by one. */
function texts(page) {
  return page.evaluate(() => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { parentElement: parent, data } = walker.currentNode;
      // Names and contents are in a `bdi`; they are what they are in every language.
      if (parent.checkVisibility() && !parent.closest('bdi, code, option, script, style')) found.push(data.trim());
    }
    return found;
  });
}

test('the pages in Chinese have no word of English left', () =>
  inPage(browser, server, { locale: 'zh-CN' }, async (page) => {
    const known = new Set(await english());
    assert.ok(known.size > 300);
    for (const [name, place] of Object.entries(places())) {
      await open(page, server, place);
      await settled(page);
      await screenshot(page, `${name}-zh`, 'light');
      assert.equal(await page.locator('html').getAttribute('lang'), 'zh-CN');
      const seen = await texts(page);
      assert.ok(seen.some((text) => /[\u4e00-\u9fff]/.test(text)), name);
      assert.deepEqual(seen.filter((text) => known.has(text)), [], name);
    }
  }));

test('somebody chooses a language, and it stays', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'topics');
    await field(page, 'Language').selectOption({ label: '中文' });
    await page.getByRole('heading', { level: 1, name: '主题' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { level: 1, name: '主题' }).waitFor();
  }));

test('somebody chooses a theme, and it stays', () =>
  inPage(browser, server, { colorScheme: 'light' }, async (page) => {
    const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await visit(page, server, 'topics');
    const light = await background();
    await field(page, 'Theme').selectOption({ label: 'Dark' });
    const dark = await background();
    assert.notEqual(dark, light);
    await page.reload();
    await settled(page);
    assert.equal(await background(), dark);
    await field(page, 'Theme').selectOption({ label: 'System' });
    assert.equal(await background(), light);
  }));
