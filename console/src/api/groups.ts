// Groups: settings, standing, and what operators do to them.

import { get, patch, path, post, put, remove } from './http'
import type { Group, GroupJob, GroupPage } from './types'
import type { ListAsked } from './topics'

const at = (topic: string, group: string, ...more: string[]) =>
  path('topics', topic, 'groups', group, ...more)

/** What tells a group from all others. */
export const nameOf = (group: { topic: string; name: string }) => `${group.topic}/${group.name}`

/** Groups with how far they are. */
export const listGroups = (asked: ListAsked, signal?: AbortSignal) =>
  get<GroupPage>('groups', { ...asked, standing: true }, signal)
export const listGroupsOf = (topic: string, asked: ListAsked, signal?: AbortSignal) =>
  get<GroupPage>(path('topics', topic, 'groups'), { ...asked, standing: true }, signal)
export const readGroup = (topic: string, group: string, signal?: AbortSignal) =>
  get<Group>(at(topic, group), {}, signal)
export const createGroup = (topic: string, group: string, settings: object) =>
  put<Group>(at(topic, group), settings)
export const changeGroup = (topic: string, group: string, settings: object) =>
  patch<Group>(at(topic, group), settings)
export const deleteGroup = (topic: string, group: string) => remove<null>(at(topic, group))
export const pauseGroup = (topic: string, group: string) => post<Group>(at(topic, group, 'pause'))
export const resumeGroup = (topic: string, group: string) => post<Group>(at(topic, group, 'resume'))
export const resetGroup = (topic: string, group: string, to: unknown) =>
  post<Group>(at(topic, group, 'reset'), { to })
export const drainGroup = (topic: string, group: string, asked: { to: string; max?: number }) =>
  post<{ job: string }>(at(topic, group, 'drain'), asked)
export const readDrain = (topic: string, group: string, job: string, signal?: AbortSignal) =>
  get<GroupJob>(at(topic, group, 'drain', job), { limit: 1 }, signal)
