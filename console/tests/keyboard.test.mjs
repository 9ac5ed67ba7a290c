// Can all of it be done without a mouse?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch, settled } from './support/browser.mjs';
import { dialog, field, item, told, view, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

/** What has the focus: its role or tag, its words, and whether that can be seen. */
function focused(page) {
  return page.evaluate(() => {
    const one = document.activeElement;
    const style = getComputedStyle(one);
    return {
      words: (one.getAttribute('aria-label') ?? one.innerText ?? '').trim().slice(0, 60),
      tag: one.tagName,
      ring: style.outlineStyle !== 'none' || style.boxShadow !== 'none',
      inDialog: one.closest('[role=dialog], dialog') !== null,
    };
  });
}

/** Tabs until the words are in focus. */
async function tabTo(page, words) {
  const passed = [];
  for (let step = 0; step < 100; step += 1) {
    await page.keyboard.press('Tab');
    const now = await focused(page);
    if (now.words === words) return now;
    passed.push(now.words || now.tag);
  }
  throw new Error(`${words} is not reached: ${passed.join(' | ')}`);
}

test('a topic is made with the keyboard alone', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'overview');
    const link = await tabTo(page, 'Topics');
    assert.ok(link.ring, 'the focus can be seen');
    await page.keyboard.press('Enter');
    await view(page, 'topics');
    await tabTo(page, 'New topic');
    await page.keyboard.press('Enter');
    await dialog(page).waitFor();
    assert.ok((await focused(page)).inDialog, 'the dialog has the focus');
    await field(dialog(page), 'Name').focus();
    await page.keyboard.type('by-keyboard');
    await page.keyboard.press('Enter');
    await told(page, 'Topic created');
    assert.equal((await server.api.ask('GET', '/v1/topics/by-keyboard')).status, 200);
  }));

test('a dialog keeps the focus and gives it back', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'topics');
    await tabTo(page, 'New topic');
    await page.keyboard.press('Enter');
    await dialog(page).waitFor();
    for (let step = 0; step < 60; step += 1) {
      await page.keyboard.press('Tab');
      const now = await focused(page);
      assert.ok(now.inDialog || now.tag === 'BODY', `after ${step + 1} steps the focus is on ${now.words}`);
    }
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });
    assert.equal((await focused(page)).words, 'New topic');
  }));

test('the content is one step away, and pages two keys', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'overview');
    await page.keyboard.press('Tab');
    assert.equal((await focused(page)).words, 'Skip to content');
    await page.keyboard.press('?');
    await dialog(page).waitFor();
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });
    await page.keyboard.press('g');
    await page.keyboard.press('t');
    await view(page, 'topics');
    await settled(page);
    await page.keyboard.press('/');
    await page.keyboard.type('mail');
    await item(page, 'orders').waitFor({ state: 'detached' });
    assert.equal(await field(page, 'Name contains').inputValue(), 'mail');
  }));

test('every page can be walked through, and every control has a name', () =>
  inPage(browser, server, {}, async (page) => {
    for (const name of ['overview', 'topics', 'topic', 'pending', 'groups', 'group', 'dead', 'transactions', 'series', 'apps', 'alerts', 'audit']) {
      await visit(page, server, name);
      await settled(page);
      const nameless = await page.locator('button, a[href], input:not([type=hidden]), select, textarea').evaluateAll((all) =>
        all.filter((one) => {
          const labelled = one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.labels?.length;
          return !labelled && !one.textContent.trim() && !one.title;
        }).map((one) => one.outerHTML.slice(0, 120)));
      assert.deepEqual(nameless, [], name);
    }
  }));
