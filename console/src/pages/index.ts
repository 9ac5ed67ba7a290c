// Every page: its address, the right it takes, its key, and where its code is.

import type { Component } from 'svelte'

import type { Verb } from '../api/types'
import { session } from '../state/session.svelte'

export type PageName =
  | 'overview' | 'topics' | 'pending' | 'groups' | 'dead' | 'transactions' | 'series'
  | 'apps' | 'nodes' | 'alerts' | 'audit'

export interface Page {
  name: PageName
  verb: Verb
  /** Whether the right has to be one for the whole broker. */
  whole: boolean
  /** Pressed after `g`. */
  key: string
  /** Whether its filter is in the address, so that another address is another beginning. */
  filtered?: boolean
  section: 'top' | 'messages' | 'operations' | 'access'
  load: () => Promise<{ default: Component }>
}

export const PAGES: Page[] = [
  { name: 'overview', verb: 'observe', whole: true, key: 'o', section: 'top', load: () => import('./Overview.svelte') },
  { name: 'topics', verb: 'see', whole: false, key: 't', section: 'messages', load: () => import('./Topics.svelte') },
  { name: 'pending', verb: 'read', whole: false, key: 'p', filtered: true, section: 'messages', load: () => import('./Pending.svelte') },
  { name: 'groups', verb: 'see', whole: false, key: 'c', section: 'messages', load: () => import('./Groups.svelte') },
  { name: 'dead', verb: 'read', whole: false, key: 'd', section: 'messages', load: () => import('./Dead.svelte') },
  { name: 'transactions', verb: 'read', whole: false, key: 'x', filtered: true, section: 'messages', load: () => import('./Transactions.svelte') },
  { name: 'series', verb: 'read', whole: false, key: 's', filtered: true, section: 'messages', load: () => import('./Series.svelte') },
  { name: 'nodes', verb: 'observe', whole: true, key: 'n', section: 'operations', load: () => import('./Nodes.svelte') },
  { name: 'alerts', verb: 'observe', whole: true, key: 'l', section: 'operations', load: () => import('./Alerts.svelte') },
  { name: 'apps', verb: 'admin', whole: true, key: 'a', section: 'access', load: () => import('./Apps.svelte') },
  { name: 'audit', verb: 'audit', whole: true, key: 'u', filtered: true, section: 'access', load: () => import('./Audit.svelte') },
]

export function mayOpen(page: Page): boolean {
  return page.whole ? session.canWhole(page.verb) : session.canAny(page.verb)
}
