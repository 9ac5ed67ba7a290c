// Can somebody look after apps, and is a secret shown once and never again? Alerts and the record too.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inPage, launch, settled } from './support/browser.mjs';
import { button, dialog, field, item, open, signIn, told, visit } from './support/console.mjs';
import { shop } from './support/seed.mjs';
import { start } from './support/server.mjs';

let browser, server;

before(async () => {
  [browser, server] = await Promise.all([launch(), start({ auth: true })]);
  await shop(server.api);
});

after(() => Promise.all([browser?.close(), server?.stop()]));

const signedIn = (options, act) =>
  inPage(browser, server, options, async (page) => {
    await signIn(page, server, server.token);
    await act(page);
  });

/** The token that is shown this once; it must work, and be gone when the dialog is. */
async function issued(page) {
  const token = await dialog(page).getByTestId('issued-token').innerText();
  assert.match(token, /^[\w-]+\.\S+$/);
  const secret = token.split('.')[1];
  await button(dialog(page), 'I have it').click();
  await dialog(page).waitFor({ state: 'detached' });
  assert.ok(!(await page.content()).includes(secret), 'it is not in the page any more');
  return token;
}

test('an app is made, and its token works', () =>
  signedIn({}, async (page) => {
    await visit(page, server, 'apps');
    await button(page, 'New app').click();
    await field(dialog(page), 'Key').fill('reporting');
    await field(dialog(page), 'Topics').first().fill('orders*');
    await field(dialog(page), 'Groups').first().fill('*');
    await dialog(page).getByLabel('see', { exact: true }).first().check();
    await dialog(page).getByLabel('read', { exact: true }).first().check();
    await field(dialog(page), 'Messages a second').fill('10');
    await button(dialog(page), 'Create').click();
    const token = await issued(page);
    const app = await server.api.get('/v1/apps/reporting');
    const [{ verbs, ...patterns }] = app.permissions;
    assert.deepEqual(patterns, { topics: 'orders*', groups: '*' });
    assert.deepEqual([...verbs].sort(), ['read', 'see']);
    assert.equal(app.quotas.messages_per_second, 10);
    assert.equal((await server.api.as(token).ask('GET', '/v1/topics/orders')).status, 200);
    assert.equal((await server.api.as(token).ask('GET', '/v1/topics/payments')).status, 403);
    await page.reload();
    await item(page, 'reporting').waitFor();
    assert.ok(!(await page.content()).includes(token.split('.')[1]));
  }));

test('a secret is rotated, and the old one ends', () =>
  signedIn({}, async (page) => {
    const { token: old } = await server.api.post('/v1/apps', { key: 'rotated', permissions: [{ topics: 'orders', verbs: ['see'] }] });
    await open(page, server, 'apps/rotated');
    await button(page, 'Rotate secret').click();
    await field(dialog(page), 'Keep the old one for').fill('');
    await button(dialog(page), 'Rotate secret').click();
    const token = await issued(page);
    assert.notEqual(token, old);
    assert.equal((await server.api.as(token).ask('GET', '/v1/topics/orders')).status, 200);
    assert.equal((await server.api.as(old).ask('GET', '/v1/topics/orders')).status, 401);
  }));

test('a secret is not lost to a slip', () =>
  signedIn({}, async (page) => {
    await server.api.post('/v1/apps', { key: 'slipping', permissions: [{ topics: 'orders', verbs: ['see'] }] });
    await open(page, server, 'apps/slipping');
    await button(page, 'Rotate secret').click();
    await button(dialog(page), 'Rotate secret').click();
    const token = page.getByTestId('issued-token');
    await token.waitFor();
    // The browser itself closes a dialog at the second one.
    for (let press = 0; press < 3; press += 1) await page.keyboard.press('Escape');
    await page.mouse.click(5, 5);
    await settled(page);
    assert.ok(await token.isVisible(), 'it is still shown');
    await button(dialog(page), 'I have it').click();
    await token.waitFor({ state: 'detached' });
  }));

test('rights are changed', () =>
  signedIn({}, async (page) => {
    await server.api.post('/v1/apps', { key: 'changed', permissions: [{ topics: 'orders', verbs: ['see'] }] });
    await open(page, server, 'apps/changed');
    await button(page, 'Edit').click();
    await dialog(page).getByLabel('send', { exact: true }).first().check();
    await field(dialog(page), 'Pending messages').fill('500');
    await button(dialog(page), 'Save').click();
    await told(page, 'App changed');
    const app = await server.api.get('/v1/apps/changed');
    assert.deepEqual([...app.permissions[0].verbs].sort(), ['see', 'send']);
    assert.equal(app.quotas.pending, 500);
  }));

test('an app is disabled, enabled and deleted', () =>
  signedIn({ refusals: [404] }, async (page) => {
    const { token } = await server.api.post('/v1/apps', { key: 'leaving', permissions: [{ topics: 'orders', verbs: ['see'] }] });
    const status = async () => (await server.api.as(token).ask('GET', '/v1/topics/orders')).status;
    await open(page, server, 'apps/leaving');
    await button(page, 'Disable').click();
    await button(dialog(page), 'Disable').click();
    await told(page, 'App disabled');
    assert.equal(await status(), 401);
    await button(page, 'Enable').click();
    await told(page, 'App enabled');
    assert.equal(await status(), 200);
    await button(page, 'Delete').click();
    await dialog(page).getByRole('textbox').fill('leaving');
    await button(dialog(page), 'Delete').click();
    await told(page, 'App deleted');
    assert.equal((await server.api.ask('GET', '/v1/apps/leaving')).status, 404);
  }));

test('what an app sent is found from its page, and each message tells who sent it', () =>
  signedIn({}, async (page) => {
    const made = await server.api.post('/v1/apps', { key: 'till', permissions: [{ topics: 'orders', verbs: ['send'] }] });
    const sent = await server.api.as(made.token).post('/v1/topics/orders/messages', { body: 'from the till', delay: '9h' });
    await open(page, server, 'apps/till');
    await page.getByTestId('app-pending').click();
    await field(page, 'Topic').fill('orders');
    await page.keyboard.press('Enter');
    await item(page, sent.id).waitFor();
    assert.equal(await page.getByTestId('row-message').count(), 1, 'those of others are not shown');
    assert.equal(await field(page, 'Sent by app').inputValue(), 'till');

    await button(page, 'Pause all').click();
    await dialog(page).getByText('1 messages match').waitFor();
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });

    await item(page, sent.id).getByTestId('open-message').click();
    await page.getByTestId('message-app').getByRole('link', { name: 'till' }).click();
    await page.getByRole('heading', { level: 1, name: 'till' }).waitFor();
  }));

test('every rule of the alerts is shown, and a test leaves its mark', () =>
  signedIn({}, async (page) => {
    const { rules, history } = await server.api.get('/v1/alerts');
    assert.ok(rules.length >= 10);
    await visit(page, server, 'alerts');
    for (const rule of rules) await item(page, rule.name).filter({ hasText: rule.about }).first().waitFor();
    await field(page, 'Language').selectOption({ label: '中文' });
    const shown = await page.getByTestId('alert-table').innerText();
    for (const rule of rules) assert.ok(!shown.includes(rule.about), rule.name);
    await field(page, '语言').selectOption({ label: 'English' });
    await button(page, 'Send a test').click();
    await button(dialog(page), 'Send a test').click();
    await told(page, 'No webhook is configured');
    const after = await server.api.get('/v1/alerts');
    assert.equal(after.history.length, history.length + 1);
    assert.equal(after.history[0].event, 'test');
  }));

test('the record shows what was done here', () =>
  signedIn({}, async (page) => {
    await server.api.put('/v1/topics/noted', { partitions: 2 });
    await visit(page, server, 'audit');
    const entry = page.getByTestId('row-audit').filter({ hasText: 'noted' }).first();
    await entry.waitFor();
    for (const text of ['admin', '127.0.0.1', 'topic_put']) await entry.getByText(text).first().waitFor();
    const { entries } = await server.api.get('/v1/audit?limit=100');
    for (const what of new Set(entries.map((one) => one.what))) await item(page, what).first().waitFor();
  }));
