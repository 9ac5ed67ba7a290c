// The real program as a process of its own, ended by its id and by nothing broader.
//
// A test knows what a user knows: an address, a token, and what the program answers.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

import { Api } from './api.mjs';

/** Longest wait for the program to be ready, or to end; only a failing test waits so long. */
const PATIENCE_MS = 60_000;
const ADMIN_TOKEN = 'admin.a-token-that-only-these-tests-know';

/** Where files are in memory, and how much room there has to be. */
const MEMORY = '/dev/shm';
const MEMORY_BYTES_MIN = 4 * 2 ** 30;

/** Starts the program on ports that the system chooses, or that one, with an empty directory for its data. */
export async function start({ auth = false, env = {}, where = tmpdir(), port = 0 } = {}) {
  const data = await mkdtemp(join(where, 'punctual-console-'));
  const server = new Server(data, auth, env);
  try {
    await server.launch(port);
  } catch (error) {
    await server.stop();
    throw error;
  }
  return server;
}

/** Starts it where very much is made quickly: nothing of it has to survive anything. */
export async function startQuick() {
  const room = await statfs(MEMORY).catch(() => ({ bavail: 0, bsize: 0 }));
  const where = room.bavail * room.bsize > MEMORY_BYTES_MIN ? MEMORY : tmpdir();
  return start({ where, env: { PUNCTUAL_STORE__DURABILITY: 'os' } });
}

class Server {
  #data;
  #auth;
  #env;
  #child;
  #log = [];

  constructor(data, auth, env) {
    [this.#data, this.#auth, this.#env] = [data, auth, env];
  }

  /** Starts it, at a port that was its own before. */
  async launch(port = 0) {
    const args = ['serve', '--http', `127.0.0.1:${port}`, '--kafka', 'off', '--data', this.#data];
    this.#child = spawn(program(), args, {
      env: { ...inherited(), ...credentials(this.#auth), ...this.#env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const address = await this.#ready();
    this.url = `http://${address}`;
    this.token = this.#auth ? ADMIN_TOKEN : null;
    this.api = new Api(this.url, this.token);
  }

  /** Where it listens, as it says when it is ready. The rest of its log is read to the end. */
  #ready() {
    const lines = createInterface({ input: this.#child.stderr });
    return new Promise((found, failed) => {
      const fail = (why) => failed(new Error(`${why}:\n${this.#log.join('\n')}`));
      const timer = setTimeout(() => fail('not ready'), PATIENCE_MS);
      lines.on('line', (line) => {
        this.#log.push(line);
        const address = / ready .*http="?([0-9.:]+)/.exec(line);
        if (address) {
          clearTimeout(timer);
          found(address[1]);
        }
      });
      this.#child.once('error', (error) => fail(error.message));
      this.#child.once('exit', (code) => {
        clearTimeout(timer);
        fail(`ended with ${code}`);
      });
    });
  }

  get pid() {
    return this.#child.pid;
  }

  log() {
    return this.#log.join('\n');
  }

  /** Processor time that it has used so far, in milliseconds. */
  async processorMs() {
    const stat = await readFile(`/proc/${this.pid}/stat`, 'utf8');
    // The name of the program is in brackets and may hold anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user, system] = [Number(fields[11]), Number(fields[12])];
    const ticksPerSecond = 100;
    return ((user + system) * 1000) / ticksPerSecond;
  }

  get isUp() {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Ends it in the middle of whatever it does. */
  async kill() {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }

  /** Ends it in order. */
  async halt() {
    if (this.isUp) {
      const ended = once(this.#child, 'exit');
      this.#child.kill('SIGTERM');
      const timer = setTimeout(() => this.#child.kill('SIGKILL'), PATIENCE_MS);
      await ended;
      clearTimeout(timer);
    }
  }

  /** Ends it, and throws its data away. */
  async stop() {
    await this.halt();
    await rm(this.#data, { recursive: true, force: true });
  }
}

function program() {
  const path = process.env.PUNCTUAL_BIN;
  if (!path) throw new Error('PUNCTUAL_BIN must name the program; scripts/console-browser.sh does');
  return resolve(path);
}

/** The program refuses variables that begin like its own and are none. */
function inherited() {
  const foreign = ([name]) => !name.startsWith('PUNCTUAL_');
  return Object.fromEntries(Object.entries(process.env).filter(foreign));
}

function credentials(auth) {
  return auth ? { PUNCTUAL_AUTH__ENABLED: 'true', PUNCTUAL_AUTH__ADMIN_TOKEN: ADMIN_TOKEN } : {};
}
