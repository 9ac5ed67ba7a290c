// Does the first page show what is going on, while it goes on?

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch, settled } from './support/browser.mjs';
import { firstFigure, open, tile, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start()]);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

test('a broker that has nothing yet says how to begin', () =>
  inPage(browser, server, {}, async (page) => {
    await visit(page, server, 'overview');
    await page.getByText('Schedule the first message').waitFor();
    await page.getByText(/curl|punctual send/).first().waitFor();
  }));

test('figures are those of the broker, and change by themselves', async () => {
  await shop(server.api);
  await inPage(browser, server, {}, async (page) => {
    await open(page, server);
    await firstFigure(page);
    await settled(page);
    const { pending } = await server.api.get('/v1/stats');
    await tile(page, 'pending', pending);
    await server.api.post('/v1/topics/orders/messages', {
      messages: Array.from({ length: 17 }, () => ({ body: 'one more', delay: '3h' })),
    });
    await tile(page, 'pending', pending + 17);
    assert.equal((await server.api.get('/v1/stats')).pending, pending + 17);
  });
});

test('a tab that nobody looks at takes nothing', () =>
  inPage(browser, server, {}, async (page) => {
    const asked = [];
    page.on('request', (request) => request.url().includes('/v1/live') && asked.push(request));
    await open(page, server);
    await firstFigure(page);
    assert.equal(asked.length, 1, 'one stream');
    const ended = page.waitForEvent('requestfailed', (request) => request.url().includes('/v1/live'));
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await ended;
    const again = page.waitForRequest((request) => request.url().includes('/v1/live'));
    await page.evaluate(() => {
      delete document.hidden;
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await again;
  }));

test('a broker that ends is noticed, and one that comes back too', async () => {
  const mortal = await start();
  const gone = [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_CONNECTION_RESET/];
  try {
    await inPage(browser, mortal, { allowed: gone }, async (page) => {
      await open(page, mortal);
      await page.getByText('Live', { exact: true }).first().waitFor();
      await mortal.halt();
      await page.getByText('Reconnecting').first().waitFor();
      await mortal.launch(new URL(mortal.url).port);
      await page.getByText('Live', { exact: true }).first().waitFor();
    });
  } finally {
    await mortal.stop();
  }
});
