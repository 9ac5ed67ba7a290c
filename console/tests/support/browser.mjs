// A browser for the tests of one file, and pages that notice what must never happen.
//
// Whatever a test does, it fails when its page logged an error, threw one, broke its content
// security policy, opened a dialog of the browser, or asked another origin for anything.

import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

export const WIDE = { width: 1440, height: 900 };
export const PHONE = { width: 390, height: 844 };

/** Longest wait for an element or an answer; only a failing test waits so long. */
const PATIENCE_MS = 20_000;
const SCREENSHOTS = fileURLToPath(new URL('../screenshots/', import.meta.url));
const PROGRAMS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Starts the browser; `close` it when the file is done. */
export function launch() {
  const executablePath = process.env.CHROMIUM_BIN ?? PROGRAMS.find(existsSync);
  if (!executablePath) throw new Error('there is no Chromium; CHROMIUM_BIN may name one');
  return chromium.launch({ executablePath, args: ['--disable-dev-shm-usage', '--font-render-hinting=none'] });
}

/**
 * Runs a test in a page of its own, with storage and cookies of its own.
 *
 * `refusals` are the statuses that the test brings about on purpose: the browser logs each such answer.
 * `allowed` is what else it may log.
 */
export async function inPage(browser, server, options, test) {
  const { viewport = WIDE, colorScheme = 'light', locale = 'en-GB', refusals = [], allowed = [], origins = [] } = options;
  const context = await browser.newContext({
    viewport,
    colorScheme,
    locale,
    timezoneId: 'UTC',
    reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  context.setDefaultTimeout(PATIENCE_MS);
  try {
    const page = await context.newPage();
    const faults = await watch(page, { refusals, allowed, origins: [server.url, ...origins] });
    await test(page).catch((error) => pictured(page, error));
    faults.none();
  } finally {
    await context.close();
  }
}

let failures = 0;

/** Fails as the test did, and leaves a picture and the refusals that the page showed. */
async function pictured(page, error) {
  failures += 1;
  await mkdir(SCREENSHOTS, { recursive: true });
  const path = `${SCREENSHOTS}failed-${process.pid}-${failures}.png`;
  await page.screenshot({ path }).catch(() => {});
  const told = await page.getByTestId('problem').or(page.getByTestId('toast-problem')).allInnerTexts().catch(() => []);
  const where = /[\w.-]+\.test\.mjs:\d+/.exec(error.stack)?.[0];
  throw new Error([error.message, where, page.url(), path, ...told].join('\n'));
}

/** Requests that are under way, by page. Streams of events never end and are left out. */
const underWay = new WeakMap();

function follow(page) {
  const open = new Set();
  underWay.set(page, open);
  const isStream = (request) => request.resourceType() === 'eventsource';
  page.on('request', (request) => !isStream(request) && open.add(request));
  page.on('requestfinished', (request) => open.delete(request));
  page.on('requestfailed', (request) => open.delete(request));
}

/** Waits until a page has all it asked for, and has drawn it: nothing under way, nothing marked busy. */
export async function settled(page) {
  const end = Date.now() + PATIENCE_MS;
  let quiet = 0;
  while (quiet < 2) {
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    const busy = underWay.get(page).size > 0 || (await page.locator('[aria-busy=true]').count()) > 0;
    quiet = busy ? 0 : quiet + 1;
    if (Date.now() > end) throw new Error(`never settles: ${[...underWay.get(page)].map((one) => one.url())}`);
  }
}

/** Takes down what must not happen in a page. */
export async function watch(page, { refusals = [], allowed = [], origins }) {
  follow(page);
  const seen = [];
  const refused = refusals.map((status) => `the server responded with a status of ${status}`);
  page.on('console', (message) => {
    const text = message.text();
    if (refused.some((one) => text.includes(one)) || allowed.some((one) => one.test(text))) return;
    if (['error', 'warning'].includes(message.type())) seen.push(`${message.type()}: ${text} (${message.location().url})`);
  });
  page.on('pageerror', (error) => seen.push(`thrown: ${error.stack ?? error.message}`));
  page.on('dialog', async (dialog) => {
    seen.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on('popup', (popup) => seen.push(`window: ${popup.url()}`));
  page.on('download', (download) => seen.push(`download: ${download.url()}`));
  page.on('request', (request) => {
    const own = origins.some((origin) => request.url().startsWith(`${origin}/`));
    if (!own && !request.url().startsWith('data:')) seen.push(`foreign request: ${request.url()}`);
  });
  await page.exposeBinding('tellViolation', (_, what) => seen.push(`policy: ${what}`));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      window.tellViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  return {
    seen,
    none() {
      if (seen.length > 0) throw new Error(`the page must not have done this:\n${seen.join('\n')}`);
    },
  };
}

/** Saves what the page shows as `NAME-THEME-WIDTH.png`. */
export async function screenshot(page, name, theme) {
  await mkdir(SCREENSHOTS, { recursive: true });
  const { width } = page.viewportSize();
  await page.screenshot({ path: `${SCREENSHOTS}${name}-${theme}-${width}.png`, animations: 'disabled' });
}

/** By how many pixels the page is wider than its window. */
export function overflow(page) {
  return page.evaluate(() => document.scrollingElement.scrollWidth - window.innerWidth);
}

/** Buttons and cells that are cut off by what they are in, or run out of the window. */
export function clipped(page) {
  return page.evaluate(() => {
    const cut = [];
    const shown = (one) => one.checkVisibility() && one.getBoundingClientRect().width > 1;
    for (const one of document.querySelectorAll('main button, main a.button, dialog[open] button')) {
      if (!shown(one)) continue;
      const { left, right } = one.getBoundingClientRect();
      let within = [0, window.innerWidth];
      for (let outer = one.parentElement; outer; outer = outer.parentElement) {
        if (getComputedStyle(outer).overflowX === 'visible') continue;
        const box = outer.getBoundingClientRect();
        within = [box.left, box.right];
        break;
      }
      if (left < within[0] - 1 || right > within[1] + 1) cut.push(`button ${one.textContent.trim() || one.ariaLabel}`);
    }
    for (const one of document.querySelectorAll('main td, main th')) {
      if (!one.closest('table.cards') || !shown(one)) continue;
      if (one.scrollWidth > one.clientWidth + 1) cut.push(`cell ${one.textContent.trim().slice(0, 40)}`);
    }
    return cut;
  });
}
