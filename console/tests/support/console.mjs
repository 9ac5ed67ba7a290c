// The console as its users know it: pages, fields by their labels, buttons by their words.
//
// What a test looks for is what somebody with a screen reader would: so the tests hold the console to
// having labels and roles at all. Test ids are used where there are no words.

/** Where the console is. */
export const CONSOLE = '/';

/** Every page, by its place after the `#`, with the heading it has. */
export const PAGES = {
  overview: ['', 'Overview'],
  topics: ['topics', 'Topics'],
  topic: ['topics/orders', 'orders'],
  pending: ['pending?topic=orders', 'Pending'],
  groups: ['groups', 'Groups'],
  group: ['groups/orders/billing', 'billing'],
  'dead-groups': ['dead', 'Dead letters'],
  dead: ['dead?topic=orders&group=billing', 'orders / billing'],
  transactions: ['transactions', 'Transactions'],
  series: ['series?topic=reports', 'Series'],
  apps: ['apps', 'Apps'],
  app: ['apps/orders-service', 'orders-service'],
  nodes: ['nodes', 'Nodes'],
  alerts: ['alerts', 'Alerts'],
  audit: ['audit', 'Audit'],
};

export const at = (scope, id) => scope.getByTestId(id);
export const button = (scope, name) => scope.getByRole('button', { name, exact: true });
/** The dialog that is open; of several the one on top. */
export const dialog = (page) => page.locator('dialog[open]').last();
/** The line of a list that is about this name or id. */
export const item = (page, name) => page.locator(`[data-row=${JSON.stringify(name)}]`);
export const row = (page, text) => page.getByRole('main').getByRole('row').filter({ hasText: text });

/** A field by its label. */
export function field(scope, label) {
  const inside = `label:has(.label:text-is(${JSON.stringify(label)})) :is(input, select, textarea)`;
  return scope.locator(inside).or(scope.getByLabel(label, { exact: true }));
}

/** Goes to a place of the console, as by a link that somebody was given. */
export async function open(page, server, place = '') {
  await page.goto(`${server.url}${CONSOLE}#/${place}`);
}

/** Goes to a page and waits for it. */
export async function visit(page, server, name) {
  const [place] = PAGES[name];
  await open(page, server, place);
  await view(page, name);
}

/** Waits until a page is there. */
export async function view(page, name) {
  const [, heading] = PAGES[name];
  await page.getByRole('heading', { level: 1, name: heading }).waitFor();
}

/** Waits until the console says that something was done. */
export async function told(page, text) {
  await page.getByTestId('toast').filter({ hasText: text }).first().waitFor();
}

/** Waits until the console tells of a refusal. */
export async function refused(page) {
  await page.getByTestId('toast-problem').or(page.getByTestId('problem')).first().waitFor();
}

export async function signIn(page, server, token) {
  if (!page.url().startsWith(server.url)) await open(page, server);
  await field(page, 'Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await view(page, 'overview');
}

export async function signOut(page) {
  await button(page, 'Sign out').click();
}

/** Waits for the first figure of the overview that has something in it. */
export async function firstFigure(page) {
  await page.getByTestId('tile-pending').filter({ hasText: /\d/ }).first().waitFor();
}

/** Waits until a tile of the overview shows a number. */
export async function tile(page, name, number) {
  const words = new Intl.NumberFormat('en').format(number);
  await page.getByTestId(`tile-${name}`).filter({ hasText: words }).first().waitFor();
}
