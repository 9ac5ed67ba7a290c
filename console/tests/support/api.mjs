// The public HTTP interface, as any client uses it. Tests seed through it, and ask it afterwards
// whether what a page showed really happened.

/** How often something is looked at that gives no signal, and how long at most. */
const LOOK_MS = 50;
const PATIENCE_MS = 30_000;

export class Api {
  constructor(url, token = null) {
    this.url = url;
    this.token = token;
  }

  /** The same server, as somebody else. */
  as(token) {
    return new Api(this.url, token);
  }

  /** Asks, and answers whatever was answered. */
  async ask(method, path, body, headers = {}) {
    const response = await fetch(this.url + path, {
      method,
      redirect: 'manual',
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(this.token ? { authorization: `Bearer ${this.token}` } : {}),
        ...headers,
      },
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, json: parsed(text) };
  }

  /** Asks for what must succeed. */
  async must(method, path, body, headers) {
    const answer = await this.ask(method, path, body, headers);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.json;
  }

  get(path) {
    return this.must('GET', path);
  }

  post(path, body = {}) {
    return this.must('POST', path, body);
  }

  put(path, body = {}) {
    return this.must('PUT', path, body);
  }

  patch(path, body) {
    return this.must('PATCH', path, body);
  }

  remove(path) {
    return this.must('DELETE', path);
  }

  /** Everything of a list, page by page. */
  async all(path, field) {
    const found = [];
    let cursor = '';
    do {
      const page = await this.get(`${path}${path.includes('?') ? '&' : '?'}limit=1000${cursor}`);
      found.push(...page[field]);
      cursor = page.next ? `&cursor=${encodeURIComponent(page.next)}` : null;
    } while (cursor);
    return found;
  }

  /** Asks until `want` is satisfied with what is answered. */
  until(what, path, want) {
    return until(what, async () => {
      const answer = await this.ask('GET', path);
      return want(answer.json, answer.status) ? answer.json : null;
    });
  }
}

/** Tries until there is an answer that counts. */
export async function until(what, attempt) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await attempt();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`waited too long for ${what}`);
    await new Promise((go) => setTimeout(go, LOOK_MS));
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
