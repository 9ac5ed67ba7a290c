// Who is signed in and what they may do. Buttons ask here; the server decides.

import { ApiError, guard, problemFrom, type Problem } from '../api/http'
import { readSession, signIn, signOut } from '../api/session'
import { VERBS, type Permission, type Session, type Verb } from '../api/types'

/** A broker that has no sessions yet lets everybody on loopback do everything. */
const OPEN: Session = {
  auth: false,
  signed_in: true,
  app: null,
  permissions: [{ topics: '*', groups: '*', verbs: VERBS }],
  csrf: null,
  expires_at: null,
  mode: 'single',
  outlet: 'log',
  version: '',
}

class SessionState {
  now = $state.raw<Session | null>(null)
  problem = $state.raw<Problem | null>(null)
  /** Whether a session ended while it was in use. */
  ended = $state(false)

  constructor() {
    guard.ended = () => {
      if (!this.now?.signed_in || !this.now.auth) return
      this.ended = true
      this.take({ ...this.now, signed_in: false, app: null, permissions: [], csrf: null })
    }
    guard.renew = () => this.load()
  }

  async load() {
    try {
      this.take(await readSession())
      this.problem = null
    } catch (error) {
      if (error instanceof ApiError && error.problem.status === 404) this.take(OPEN)
      else this.problem = problemFrom(error)
    }
  }

  async signIn(token: string) {
    this.take(await signIn(token))
    this.ended = false
  }

  async signOut() {
    await signOut()
    await this.load()
  }

  private take(session: Session) {
    guard.csrf = session.csrf
    this.now = session
  }

  get isIn(): boolean {
    return this.now?.signed_in ?? false
  }

  /** For the whole broker. */
  canWhole(verb: Verb): boolean {
    return this.some(verb, (held) => held.topics === '*' && held.groups === '*')
  }

  canTopic(verb: Verb, topic: string): boolean {
    return this.some(verb, (held) => matches(held.topics, topic))
  }

  canGroup(verb: Verb, topic: string, group: string): boolean {
    return this.some(verb, (held) => matches(held.topics, topic) && matches(held.groups, group))
  }

  /** For anything at all: whether a page is worth showing. */
  canAny(verb: Verb): boolean {
    return this.some(verb, () => true)
  }

  private some(verb: Verb, covers: (held: Permission) => boolean): boolean {
    const now = this.now
    if (!now?.signed_in) return false
    if (!now.auth) return true
    return now.permissions.some((held) => held.verbs.includes(verb) && covers(held))
  }
}

function matches(pattern: string | null | undefined, name: string): boolean {
  if (!pattern) return false
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name
}

export const session = new SessionState()
