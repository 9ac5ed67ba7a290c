// What does the console cost: how soon is there something to see, how much is sent for it, and what do
// open pages take from the server? The figures are printed; the bounds leave room for busy machines.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch } from './support/browser.mjs';
import { CONSOLE, firstFigure, liveTick, open } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

const FIRST_VIEW_MS_MAX = 5_000;
const FIRST_VIEW_BYTES_MAX = 250_000;
const LIVE_PAGES = 5;
const LIVE_MS = 20_000;
/** A tenth of a core; the program that tests use is not optimised. */
const LIVE_SHARE_MAX = 0.1;

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

test('the first view is small, and soon there', (t) =>
  inPage(browser, server, {}, async (page) => {
    const network = await page.context().newCDPSession(page);
    await network.send('Network.enable');
    const sizes = new Map();
    const names = new Map();
    network.on('Network.requestWillBeSent', ({ requestId, request }) => names.set(requestId, request.url));
    network.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => sizes.set(requestId, encodedDataLength));
    const begun = performance.now();
    await page.goto(server.url + CONSOLE, { waitUntil: 'commit' });
    await firstFigure(page);
    const took = performance.now() - begun;
    await page.waitForLoadState('load');
    await liveTick(page);
    const bytes = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    const largest = [...sizes].sort((a, b) => b[1] - a[1]).slice(0, 4);
    t.diagnostic(`first figure after ${took.toFixed(0)} ms, ${bytes} bytes in ${sizes.size} answers`);
    for (const [id, size] of largest) t.diagnostic(`${size} bytes: ${new URL(names.get(id)).pathname}`);
    assert.ok(sizes.size >= 3, 'a document, a script and a style at least');
    assert.ok(bytes < FIRST_VIEW_BYTES_MAX, `${bytes} bytes`);
    assert.ok(took < FIRST_VIEW_MS_MAX, `${took} ms`);
  }));

test('a second visit fetches no file again', (t) =>
  inPage(browser, server, {}, async (page) => {
    await open(page, server);
    await firstFigure(page);
    const network = await page.context().newCDPSession(page);
    await network.send('Network.enable');
    const fetched = [];
    network.on('Network.responseReceived', ({ response }) => {
      const { pathname } = new URL(response.url);
      const kept = response.fromDiskCache || response.fromPrefetchCache || response.fromServiceWorker;
      if (pathname.startsWith('/assets/') && !kept) fetched.push(pathname);
    });
    await page.goto('about:blank');
    await open(page, server);
    await firstFigure(page);
    t.diagnostic(`fetched again: ${fetched.length}`);
    assert.deepEqual(fetched, []);
  }));

test('open live views take next to nothing from the server', async (t) => {
  const context = await browser.newContext();
  try {
    for (let opened = 0; opened < LIVE_PAGES; opened += 1) {
      const page = await context.newPage();
      await open(page, server);
      await firstFigure(page);
    }
    const [page] = context.pages();
    const before = await server.processorMs();
    const begun = performance.now();
    // A time that is measured, not waited for.
    while (performance.now() - begun < LIVE_MS) await liveTick(page);
    const passed = performance.now() - begun;
    const used = (await server.processorMs()) - before;
    const share = used / passed;
    t.diagnostic(`${LIVE_PAGES} live pages: ${used} ms of processor time in ${passed.toFixed(0)} ms, ${(share * 100).toFixed(2)} % of a core`);
    assert.ok(share < LIVE_SHARE_MAX, `${share}`);
  } finally {
    await context.close();
  }
});
