// Dead letters of a group.

import { get, path, post } from './http'
import type { PageAsked } from './messages'
import type { DeadFilter, DeadPage, DeadSummary, GroupJob } from './types'

const at = (topic: string, group: string, ...more: string[]) =>
  path('topics', topic, 'groups', group, 'dead', ...more)

export const listDead = (topic: string, group: string, asked: DeadFilter & PageAsked, signal?: AbortSignal) =>
  get<DeadPage>(at(topic, group), { ...asked }, signal)
export const readSummary = (topic: string, group: string, signal?: AbortSignal) =>
  get<DeadSummary>(at(topic, group, 'summary'), {}, signal)

export interface RedriveAsked {
  filter?: DeadFilter
  rate?: number
  at?: string
  edit?: object
}

export const countRedrive = (topic: string, group: string, asked: RedriveAsked) =>
  post<{ matched: number }>(at(topic, group, 'redrive'), { ...asked, dry_run: true })
export const redrive = (topic: string, group: string, asked: RedriveAsked) =>
  post<{ job: string }>(at(topic, group, 'redrive'), asked)
export const readRedrive = (topic: string, group: string, job: string, signal?: AbortSignal) =>
  get<GroupJob>(at(topic, group, 'redrive', job), { limit: 1 }, signal)
export const purge = (topic: string, group: string, asked: { filter?: DeadFilter; all?: boolean; dry_run?: boolean }) =>
  post<{ matched: number; purged?: number }>(at(topic, group, 'purge'), asked)
