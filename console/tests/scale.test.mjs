// Do lists and searches work, and pages answer, with very much to show?
//
// Twenty thousand messages unless PUNCTUAL_CONSOLE_SCALE=1 asks for ten million.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch, overflow, screenshot, settled } from './support/browser.mjs';
import { button, field, firstFigure, open, row, visit } from './support/console.mjs';
import { messages, topics } from './support/crowd.mjs';
import { startQuick } from './support/server.mjs';

const TOPICS = 10_000;
const MESSAGES = process.env.PUNCTUAL_CONSOLE_SCALE === '1' ? 10_000_000 : 20_000;
/** How long a page may take to answer somebody; loose, because machines are busy. */
const ANSWER_MS_MAX = 15_000;

/** Up to so many are looked through for one key while somebody waits. */
const SEARCHED_MAX = 100_000;

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), startQuick()]);
  await server.api.put('/v1/topics/reminders', { partitions: 4 });
  await messages(server.api, 'reminders', MESSAGES);
  await topics(server.api, TOPICS);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

/** Does something, and answers how long it took; the figure is printed. */
async function timed(t, what, act) {
  const begun = performance.now();
  await act();
  const took = performance.now() - begun;
  t.diagnostic(`${what}: ${took.toFixed(0)} ms`);
  assert.ok(took < ANSWER_MS_MAX, `${what} took ${took} ms`);
}

/** A time as the field for it takes it; the pages are in UTC. */
const local = (ms) => new Date(ms).toISOString().slice(0, 19);

/** How many elements the page has: what is shown, not what there is. */
const elements = (page) => page.evaluate(() => document.querySelectorAll('*').length);

test('ten thousand topics are listed, searched and leafed through', (t) =>
  inPage(browser, server, {}, async (page) => {
    await timed(t, 'the list', async () => {
      await visit(page, server, 'topics');
      await row(page, 'topic-00000').waitFor();
    });
    await timed(t, 'the next page', async () => {
      await button(page, 'Next').click();
      await row(page, 'topic-00000').waitFor({ state: 'detached' });
    });
    await timed(t, 'a search', async () => {
      await field(page, 'Name contains').fill('9987');
      await row(page, 'topic-09987').waitFor();
    });
    assert.ok((await elements(page)) < 10_000);
    await screenshot(page, 'scale-topics', 'light');
    assert.ok((await overflow(page)) <= 0);
  }));

test('among very many pending messages each is found', (t) =>
  inPage(browser, server, {}, async (page) => {
    const last = MESSAGES - 1;
    await timed(t, 'the list', async () => {
      await open(page, server, 'pending?topic=reminders');
      await row(page, 'user-0/0').first().waitFor();
    });
    for (let leaf = 0; leaf < 3; leaf += 1) {
      await timed(t, 'the next page', async () => {
        const first = await row(page, /user-\d/).first().innerText();
        await button(page, 'Next').click();
        await row(page, first.split('\n')[0]).filter({ hasText: first }).waitFor({ state: 'detached' });
      });
    }
    // The last of all: what is before it has to be looked through, unless the time is known about.
    const key = `user-${last % 1000}/${last}`;
    if (MESSAGES > SEARCHED_MAX) await field(page, 'Due from').fill(local(Date.now() + 29.9 * 86_400_000));
    await timed(t, 'a search by key', async () => {
      await field(page, 'Key').fill(key);
      await page.keyboard.press('Enter');
      await row(page, key).first().waitFor();
    });
    await screenshot(page, 'scale-pending', 'light');
  }));

test('a search says how far it is, is stopped and goes on, and is not begun again by the clock', () =>
  inPage(browser, server, {}, async (page) => {
    let [asked, release] = [0, () => {}];
    let held = new Promise((resolve) => (release = resolve));
    await page.route(/\/scheduled\?.*key=nobody/, async (route) => {
      asked += 1;
      if (asked > 1) await held;
      await route.continue().catch(() => {});
    });
    const progress = page.getByTestId('search-progress');
    await open(page, server, 'pending?topic=reminders&key=nobody');
    await progress.filter({ hasText: /Still searching\. Searched up to .*20\d\d/ }).waitFor();
    await button(page, 'Stop').click();
    await progress.filter({ hasText: 'Search stopped. Searched up to' }).waitFor();
    assert.equal(await page.getByTestId('empty').count(), 0, 'nobody knows yet that there is nothing');
    await button(page, 'Go on').click();
    release();
    await page.getByTestId('empty').filter({ hasText: 'Nothing matches' }).waitFor();
    const before = asked;
    assert.ok(before > 2, `${before} answers`);
    // Longer than it takes a list to be loaded again.
    await page.waitForTimeout(6000);
    assert.equal(asked, before);
    await button(page, 'Search again').click();
    await settled(page);
    assert.ok(asked > before);
  }));

test('the overview is there at once, with all of it', (t) =>
  inPage(browser, server, {}, async (page) => {
    await timed(t, 'the first figure', async () => {
      await open(page, server);
      await firstFigure(page);
    });
    await settled(page);
    assert.ok((await elements(page)) < 10_000);
    await screenshot(page, 'scale-overview', 'light');
    await open(page, server, 'topics/reminders');
    await settled(page);
    await screenshot(page, 'scale-topic', 'light');
  }));
