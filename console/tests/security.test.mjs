// Can anybody do through a browser what they may not? Cookies, foreign pages, frames, headers.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Api, until } from './support/api.mjs';
import { inPage, launch } from './support/browser.mjs';
import { CONSOLE, at, open, signIn, signOut, view } from './support/console.mjs';
import { neighbour } from './support/neighbour.mjs';
import { start } from './support/server.mjs';

let browser, open_to_all, guarded;

before(async () => {
  [browser, open_to_all, guarded] = await Promise.all([launch(), start(), start({ auth: true })]);
  await guarded.api.put('/v1/topics/orders');
});

after(() => Promise.all([browser?.close(), open_to_all?.stop(), guarded?.stop()]));

/** A session as a browser would hold it: the cookie, and what goes with changes. */
async function session(server, token) {
  const answer = await server.api.as(null).ask('POST', '/v1/session', { token });
  assert.equal(answer.status, 201, answer.text);
  const [set] = answer.headers.getSetCookie();
  return { set, cookie: set.split(';')[0], csrf: answer.json.csrf };
}

test('a session is a cookie that scripts cannot read and other sites do not send', async () => {
  const { set, csrf } = await session(guarded, guarded.token);
  const flags = set.split(';').map((part) => part.trim().toLowerCase());
  for (const flag of ['httponly', 'samesite=strict', 'path=/']) assert.ok(flags.includes(flag), set);
  assert.ok(!flags.some((flag) => flag.startsWith('domain')), set);
  assert.ok(!set.includes(guarded.token.split('.')[1]), 'the cookie is not the secret');
  assert.ok(csrf.length >= 16);
});

test('a cookie alone changes nothing', async () => {
  const { cookie, csrf } = await session(guarded, guarded.token);
  const anybody = new Api(guarded.url);
  const ask = (headers) => anybody.ask('PUT', '/v1/topics/by-cookie', {}, headers);
  for (const headers of [{ cookie }, { cookie, 'x-punctual-csrf': '' }, { cookie, 'x-punctual-csrf': `${csrf}x` }]) {
    const answer = await ask(headers);
    assert.equal(answer.status, 403, answer.text);
    assert.equal(answer.json.code, 'csrf');
  }
  const other = await session(guarded, guarded.token);
  assert.equal((await ask({ cookie, 'x-punctual-csrf': other.csrf })).status, 403, 'of another session');
  assert.equal((await guarded.api.ask('GET', '/v1/topics/by-cookie')).status, 404);
  assert.equal((await ask({ cookie, 'x-punctual-csrf': csrf })).status, 201);
  assert.equal((await anybody.ask('DELETE', '/v1/session', undefined, { cookie })).status, 403);
});

test('wrong tokens and made-up cookies are nobody', async () => {
  const anybody = new Api(guarded.url);
  for (const token of ['', 'admin', 'admin.', 'admin.wrong', 'nobody.secret', 'x'.repeat(10_000), 'a\u0000b']) {
    const answer = await anybody.ask('POST', '/v1/session', { token });
    assert.ok([400, 401, 413].includes(answer.status), `${token.slice(0, 20)}: ${answer.status}`);
    assert.deepEqual(answer.headers.getSetCookie(), []);
  }
  const { cookie } = await session(guarded, guarded.token);
  const [name, value] = cookie.split(/=(.*)/s);
  for (const made of ['', 'x', value.slice(1), `${value}0`, value.split('').reverse().join('')]) {
    const answer = await anybody.ask('GET', '/v1/topics', undefined, { cookie: `${name}=${made}` });
    assert.equal(answer.status, 401, `${made}: ${answer.text}`);
  }
  assert.equal((await anybody.ask('GET', '/v1/session')).json.signed_in, false);
});

test('somebody signs in and out, and the cookie is worth nothing afterwards', () =>
  inPage(browser, guarded, { refusals: [401] }, async (page) => {
    await open(page, guarded);
    await at(page, 'page-sign-in').waitFor();
    await at(page, 'sign-in-token').fill('admin.wrong-wrong-wrong-wrong');
    await at(page, 'sign-in-submit').click();
    await page.getByRole('alert').waitFor();
    await signIn(page, guarded, guarded.token);
    assert.equal(await page.evaluate(() => document.cookie), '', 'scripts see no cookie');
    const stored = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
    assert.ok(!stored.includes(guarded.token), 'the token is stored nowhere');
    const [cookie] = await page.context().cookies();
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
    await page.reload();
    await view(page, 'overview');
    await signOut(page);
    await at(page, 'page-sign-in').waitFor();
    const replayed = { cookie: `${cookie.name}=${cookie.value}` };
    assert.equal((await new Api(guarded.url).ask('GET', '/v1/topics', undefined, replayed)).status, 401);
  }));

test('a session ends when its app is disabled', async () => {
  const verbs = ['see', 'read', 'observe'];
  const permissions = [{ topics: '*', groups: '*', verbs }];
  const { token } = await guarded.api.post('/v1/apps', { key: 'leaver', permissions });
  await inPage(browser, guarded, { refusals: [401] }, async (page) => {
    await signIn(page, guarded, token);
    await guarded.api.post('/v1/apps/leaver/disable');
    await page.reload();
    await at(page, 'page-sign-in').waitFor();
  });
  const refused = await guarded.api.as(null).ask('POST', '/v1/session', { token });
  assert.equal(refused.status, 401);
});

/** A page that tries everything a page can do without asking, and says when it is done. */
function attacker(target) {
  return `<!doctype html><title>foreign</title><script>
    const target = ${JSON.stringify(target)};
    const change = (path, options) => fetch(target + path, { credentials: 'include', ...options })
      .then((answer) => answer.type + ' ' + answer.status, (error) => 'blocked');
    window.tried = Promise.all([
      change('/v1/topics/stolen/messages', { method: 'POST', mode: 'no-cors', body: '{"body":"x"}' }),
      change('/v1/topics/stolen/messages', { method: 'POST', body: '{"body":"x"}' }),
      change('/v1/topics/stolen', { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{}' }),
      change('/v1/topics/orders', { method: 'DELETE' }),
      change('/v1/session', { method: 'POST', mode: 'no-cors', body: '{"token":"admin.x"}' }),
      change('/v1/topics', {}),
      new Promise((done) => {
        const events = new EventSource(target + '/v1/live', { withCredentials: true });
        events.onmessage = () => done('read');
        events.addEventListener('figures', () => done('read'));
        events.onerror = () => { events.close(); done('blocked'); };
      }),
    ]);
  </script>
  <form method=post enctype=text/plain action="${target}/v1/topics/stolen/messages">
    <input name='{"body":"x","headers":{"a":"' value='"}}'><button>Win</button>
  </form>`;
}

for (const [whose, name] of [['url', 'another port'], ['site', 'another site']]) {
  for (const auth of [true, false]) {
    test(`a page of ${name} changes and reads nothing, ${auth ? 'with' : 'without'} credentials`, async () => {
      const server = auth ? guarded : open_to_all;
      await server.api.put('/v1/topics/orders');
      const foreign = await neighbour({ '/': attacker(server.url) });
      const context = await browser.newContext();
      try {
        const own = await context.newPage();
        if (auth) await signIn(own, server, server.token);
        const page = await context.newPage();
        const answers = [];
        page.on('response', (one) => one.url().startsWith(server.url) && answers.push(one));
        await page.goto(`${foreign[whose]}/`);
        const tried = await page.evaluate(() => window.tried);
        for (const one of tried) assert.match(one, /^(blocked|opaque 0)$/, JSON.stringify(tried));
        const posted = page.waitForResponse((one) => one.request().method() === 'POST' && one.url().endsWith('/stolen/messages'));
        await page.getByRole('button', { name: 'Win' }).click();
        assert.equal((await posted).status(), 403, 'the form');
        const changes = answers.filter((one) => ['POST', 'PUT', 'DELETE'].includes(one.request().method()));
        assert.ok(changes.length >= 3, 'they reached the server');
        for (const one of changes) assert.equal(one.status(), 403, `${one.request().method()} ${one.url()}`);
        assert.equal((await server.api.ask('GET', '/v1/topics/stolen')).status, 404);
        assert.equal((await server.api.ask('GET', '/v1/topics/orders')).status, 200);
      } finally {
        await context.close();
        await foreign.stop();
      }
    });
  }
}

test('a frame of another page does not show it', async () => {
  const foreign = await neighbour({ '/': `<iframe id=trap src="${open_to_all.url}${CONSOLE}"></iframe>` });
  const page = await browser.newPage();
  try {
    const refused = new Promise((told) => page.on('console', (message) => {
      if (/frame/i.test(message.text())) told(message.text());
    }));
    await page.goto(foreign.url);
    await refused;
    const frame = page.frames().find((one) => one !== page.mainFrame());
    const shown = await until('the frame', () => frame.evaluate(() => document.readyState === 'complete').catch(() => true));
    assert.ok(shown);
    assert.equal(await frame.locator('[data-testid]').count(), 0);
  } finally {
    await page.close();
    await foreign.stop();
  }
});

/** Every address of the console that a first view asks for. */
async function answers(server) {
  const found = new Map();
  const page = await browser.newPage();
  try {
    page.on('response', (one) => {
      const path = new URL(one.url()).pathname;
      if (!path.startsWith('/v1/')) found.set(path, one);
    });
    await page.goto(server.url + CONSOLE);
    await view(page, 'overview');
    return [...found.keys()];
  } finally {
    await page.close();
  }
}

test('every answer of the console has its security headers', async () => {
  const paths = await answers(open_to_all);
  assert.ok(paths.length >= 3, `a document, a script, a style: ${paths}`);
  for (const path of [...paths, '/assets/nothing-here.js', '/assets/..%2f..%2fetc%2fpasswd']) {
    const { headers, status } = await open_to_all.api.ask('GET', path);
    const has = (name) => headers.get(name) ?? '';
    const what = `${path} (${status})`;
    assert.equal(has('x-content-type-options'), 'nosniff', what);
    if (status !== 200) continue;
    const policy = has('content-security-policy');
    for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action"]) {
      assert.ok(policy.includes(part), `${what} has ${part}: ${policy}`);
    }
    assert.ok(!/unsafe-|\*|https?:/.test(policy), policy);
    assert.equal(has('x-frame-options'), 'DENY', what);
    assert.match(has('referrer-policy'), /^(no-referrer|same-origin)$/, what);
    assert.equal(has('access-control-allow-origin'), '', what);
  }
});

test('the document runs nothing that stands in itself', async () => {
  const { text } = await open_to_all.api.ask('GET', CONSOLE);
  const scripts = [...text.matchAll(/<script\b([^>]*)>([\s\S]*?)<\/script>/gi)];
  assert.ok(scripts.length > 0);
  for (const [whole, attributes, content] of scripts) {
    assert.match(attributes, /\bsrc=/, whole);
    assert.equal(content.trim(), '');
  }
  assert.doesNotMatch(text, /\son[a-z]+\s*=|<style|\sstyle\s*=|javascript:|https?:\/\//i);
});
