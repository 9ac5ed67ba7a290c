// Texts that people send to see what breaks. Each one that could run says so in `window.hit`.

const RUN = 'window.hit=(window.hit||0)+1';

/** Every text by what it tries. */
export const HOSTILE = {
  script: `<script>${RUN}</script>`,
  'script, broken up': `<scr<script>ipt>${RUN}</scr</script>ipt>`,
  'end of a script': `</script><script>${RUN}</script>`,
  'end of a text area': `</textarea></title></style><img src=x onerror="${RUN}">`,
  'image with a handler': `<img src=x onerror="${RUN}">`,
  'drawing with a handler': `<svg/onload="${RUN}"><animate onbegin="${RUN}" attributeName=x dur=1s>`,
  'frame with a document': `<iframe srcdoc="<script>parent.${RUN}</script>"></iframe>`,
  'attribute, broken out of': `" autofocus onfocus="${RUN}" x="`,
  'attribute in single quotes': `' onmouseover='${RUN}' x='`,
  'link that is a script': `javascript:${RUN}`,
  'link to data': `data:text/html,<script>${RUN}</script>`,
  'link of a foreign page': `<a href="http://203.0.113.7/x" ping="http://203.0.113.7/y">here</a>`,
  'style of a foreign page': `<style>@import url(http://203.0.113.7/a.css);*{display:none}</style>`,
  'refresh': `<meta http-equiv="refresh" content="0;url=http://203.0.113.7/">`,
  'form that takes over': `<form action="http://203.0.113.7/"><input name=q><button>Go</button></form>`,
  template: '{{constructor.constructor("' + RUN + '")()}}${' + RUN + '}{@html "<b>"}{#if true}',
  entities: '&lt;script&gt; &#60;b&#62; &amp;amp; &quot;',
  'right to left': '\u05d0\u05d1\u05d2 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 <b>',
  'bidirectional override': 'invoice\u202Egpj.exe\u2066\u2067 end',
  'zero width': 'pay\u200Bment\u200C\u200D\uFEFF\u2060 to',
  'combining flood': `z${'\u0300\u0301\u0302\u0489'.repeat(60)}algo`,
  'family of emoji': '\u{1F468}\u200D\u{1F469}\u200D\u{1F467}\u200D\u{1F466}\u{1F3F4}\u{E0067}\u{E0062}\u{E007F}',
  formula: '=HYPERLINK("http://203.0.113.7","x")+cmd|\' /C calc\'!A0',
  'lines and returns': 'first\r\nSet-Cookie: a=b\r\n\r\nsecond\u2028third\u2029fourth\u0085',
  'terminal escapes': '\u001b[31mred\u001b[0m\u001b]0;title\u0007\u009b2J',
  'end of a text': 'before\u0000after',
  database: `'; DROP TABLE messages; -- " OR "1"="1`,
  prototype: '__proto__',
  constructor: 'constructor',
  'end of JSON': '"}]}\\u0022,"admin":true,{"x":"',
  'format codes': '%s%n%d%x %00 %2e%2e%2f ../../../etc/passwd',
  'long and unbroken': 'W'.repeat(10_000),
  'one megabyte': `start-${'m'.repeat(1 << 20)}-end`,
};

/** Own ids may not hold control characters. */
export function withoutControls(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, '');
}

/** The longest beginning that has at most so many bytes of UTF-8. */
export function atMost(text, bytes) {
  let cut = text.slice(0, bytes);
  while (Buffer.byteLength(cut) > bytes) cut = cut.slice(0, -1);
  return cut.isWellFormed() ? cut : cut.slice(0, -1);
}

const KEY_BYTES = 32 << 10;
const HEADER_BYTES = 16 << 10;
const OWN_ID_BYTES = 256;
/** Names that are legal, and mean something to a language or to a page. */
export const NAMES = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', '-', '...', 'null', 'W'.repeat(249)];
export const TOPIC = 'hostile';
export const GROUP = 'victims';

/**
 * Brings every text into every field that takes it: keys, headers, bodies, own ids, errors, series,
 * transactions, filters of bulk changes, names. Answers how often a field refused a text.
 */
export async function sow(api) {
  const refused = [];
  const attempt = async (what, path, body, method = 'POST') => {
    const answer = await api.ask(method, path, body);
    if (answer.status >= 500) throw new Error(`${what}: ${answer.status} ${answer.text}`);
    if (answer.status >= 300) refused.push(`${what}: ${answer.json?.code}`);
    return answer.json;
  };
  await api.put(`/v1/topics/${TOPIC}`, { partitions: 1 });
  await api.put(`/v1/topics/${TOPIC}/groups/${GROUP}`, { retry: { ladder: ['1h'] } });
  for (const [what, text] of Object.entries(HOSTILE)) {
    await attempt(`${what}, pending`, `/v1/topics/${TOPIC}/messages`, message(text, { delay: '1h' }));
    const held = await attempt(`${what}, held`, `/v1/topics/${TOPIC}/messages`, message(text, { delay: '1h' }));
    await attempt(`${what}, paused`, `/v1/topics/${TOPIC}/messages/${held.id}`, { paused: true }, 'PATCH');
    await attempt(`${what}, delivered`, `/v1/topics/${TOPIC}/messages`, message(text));
  }
  await decided(api, attempt);
  await failed(api, attempt);
  for (const name of NAMES) {
    await attempt(name.slice(0, 20), `/v1/topics/${name}`, {}, 'PUT');
    await attempt(name.slice(0, 20), `/v1/topics/${TOPIC}/groups/${name.slice(0, 200)}`, {}, 'PUT');
    await attempt(name.slice(0, 20), '/v1/apps', { key: name.slice(0, 60) });
  }
  // Last, and the first of them newest: so they are on the first page of the record.
  for (const [what, text] of Object.entries(HOSTILE).reverse()) {
    // Nothing is scheduled that late; what counts is that the record has the filter.
    const filter = { key_prefix: atMost(text, KEY_BYTES), from: '2099-01-01T00:00:00Z' };
    await attempt(`${what}, filter`, `/v1/topics/${TOPIC}/scheduled/cancel`, { filter });
  }
  return refused;
}

/** Everything of a message is the text, as far as it fits. */
function message(text, more = {}) {
  const headers = { plain: atMost(text, HEADER_BYTES), [atMost(text, 200)]: 'as a name' };
  return { key: atMost(text, KEY_BYTES), headers, body: text, ...more };
}

async function decided(api, attempt) {
  for (const [what, text] of Object.entries(HOSTILE)) {
    const id = atMost(withoutControls(text), OWN_ID_BYTES);
    const body = atMost(text, 1000);
    const repeat = { every: '1h' };
    await attempt(`${what}, series`, `/v1/topics/${TOPIC}/messages`, { id: `s${id.slice(0, 240)}`, body, repeat });
    await attempt(`${what}, own id`, `/v1/topics/${TOPIC}/messages`, { id, body, delay: '2h' });
    const half = { topic: TOPIC, id: atMost(`t${id}`, OWN_ID_BYTES), body };
    await attempt(`${what}, transaction`, '/v1/transactions', {
      producer_group: GROUP,
      check: { first: '1h' },
      messages: [half],
    });
  }
  const binary = Buffer.from(Array.from({ length: 300 }, (_, byte) => byte % 256)).toString('base64');
  await attempt('binary', `/v1/topics/${TOPIC}/messages`, { key_base64: binary, body_base64: binary, delay: '1h' });
}

/** Each delivered one fails with its own text as the error: a half waits, the other half is given up. */
async function failed(api, attempt) {
  const group = `/v1/topics/${TOPIC}/groups/${GROUP}`;
  const texts = Object.values(HOSTILE);
  let left = texts.length;
  while (left > 0) {
    const { messages } = await api.post(`${group}/receive`, { max: 10, wait: '10s', lease: '10m' });
    if (messages.length === 0) throw new Error(`${left} were not delivered`);
    for (const one of messages) {
      const error = one.body ?? one.key;
      await attempt('error', `${group}/nack`, { receipts: [one.receipt], reject: left % 2 === 0, error: atMost(error, 1000) });
      left -= 1;
    }
  }
}
