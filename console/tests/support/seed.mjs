// A small shop whose broker is at work: something of everything that the console shows.

const HOUR_MS = 3_600_000;

/** Seeds everything; answers the names and ids that tests ask about. */
export async function shop(api) {
  await topics(api);
  await pending(api);
  const dead = await consumed(api);
  const transactions = await prepared(api);
  const series = await repeating(api);
  await apps(api);
  return { dead, transactions, series };
}

async function topics(api) {
  await api.put('/v1/topics/orders', { partitions: 4, retention: '7d' });
  await api.put('/v1/topics/payments', { partitions: 2, rate_cap: 500 });
  await api.put('/v1/topics/mail.welcome', { jitter: '2s' });
  await api.put('/v1/topics/reports', { paused: true });
}

async function pending(api) {
  const orders = Array.from({ length: 120 }, (_, number) => ({
    id: `close-${number}`,
    key: `shop-${number % 7}/order-${number}`,
    headers: { source: number % 2 ? 'web' : 'app', 'trace-id': `t-${number}` },
    body: { order: number, total: number * 3.5, note: 'close if it is not paid' },
    deliver_at: new Date(Date.now() + HOUR_MS + number * 60_000).toISOString(),
  }));
  await api.post('/v1/topics/orders/messages', { messages: orders });
  for (const number of [3, 4]) await api.patch(`/v1/topics/orders/messages/close-${number}`, { paused: true });
  await api.post('/v1/topics/payments/messages', {
    messages: Array.from({ length: 30 }, (_, number) => ({
      key: `payment-${number}`,
      body: `remind ${number}`,
      delay: `${number + 1}h`,
    })),
  });
}

/** Groups that are behind, hold messages, wait for retries, and have given some up. */
async function consumed(api) {
  const group = '/v1/topics/orders/groups/billing';
  await api.put(group, { retry: { ladder: ['1h', '2h'] } });
  await api.put('/v1/topics/orders/groups/audit');
  await api.put('/v1/topics/payments/groups/ledger', { ordered: true });
  const now = Array.from({ length: 40 }, (_, number) => ({ key: `now-${number}`, body: { paid: number } }));
  await api.post('/v1/topics/orders/messages', { messages: now });
  await api.until('the deliveries', group, (found) => found.lag === now.length);
  const { messages } = await api.post(`${group}/receive`, { max: 20, wait: '20s', lease: '1h' });
  const receipts = messages.map((message) => message.receipt);
  await api.post(`${group}/ack`, { receipts: receipts.slice(0, 4) });
  await api.post(`${group}/nack`, { receipts: receipts.slice(4, 8), error: 'the bank is closed' });
  const rejected = receipts.slice(8, 14);
  await api.post(`${group}/nack`, { receipts: rejected, reject: true, error: 'no such account' });
  const dead = await api.until('the dead letters', `${group}/dead`, (page) => page.messages.length === 6);
  return dead.messages.map((letter) => letter.id);
}

/** Transactions that nobody has decided, one of them given up. */
async function prepared(api) {
  const prepare = (number, check) =>
    api.post('/v1/transactions', {
      producer_group: 'shop',
      check,
      messages: [
        { topic: 'orders', id: `half-${number}`, body: { order: number }, delay: '30m' },
        { topic: 'payments', id: `half-${number}`, body: { order: number } },
      ],
    });
  const open = [];
  for (const number of [1, 2, 3]) open.push((await prepare(number, { first: '1h' })).id);
  const unresolved = (await prepare(4, { first: '1s', interval: '1s', max: 1 })).id;
  await api.post('/v1/producer-groups/shop/checks', { wait: '20s', max: 1 });
  const path = `/v1/transactions/${unresolved}`;
  await api.until('the last check', path, (found) => found.state === 'unresolved');
  return { open, unresolved };
}

async function repeating(api) {
  const daily = { id: 'daily', body: 'sum up', repeat: { cron: '0 9 * * 1-5', zone: 'Asia/Shanghai' } };
  const hourly = { id: 'hourly', body: 'look', repeat: { every: '1h', count: 100 } };
  for (const message of [daily, hourly]) await api.post('/v1/topics/reports/messages', message);
  return ['daily', 'hourly'];
}

async function apps(api) {
  const team = { topics: 'orders*', groups: '*', verbs: ['send', 'read', 'see', 'cancel', 'change'] };
  await api.post('/v1/apps', {
    key: 'orders-service',
    permissions: [team],
    quotas: { messages_per_second: 1000, pending: 1_000_000 },
  });
  await api.post('/v1/apps', { key: 'retired', permissions: [{ topics: 'payments', verbs: ['send'] }] });
  await api.post('/v1/apps/retired/disable');
}

/** An app that may look at everything and change nothing; answers its token. */
export async function onlooker(api, key = 'onlooker') {
  const verbs = ['see', 'read', 'observe'];
  const { token } = await api.post('/v1/apps', { key, permissions: [{ topics: '*', groups: '*', verbs }] });
  return token;
}
