// Pending messages, one by one and many at once; series.

import { get, patch, path, post, remove } from './http'
import type { BulkAnswer, BulkJob, BulkVerb, Message, MessagePage, PendingFilter, SeriesPage } from './types'

export interface PageAsked {
  limit?: number
  cursor?: string | null | undefined
}

export const listPending = (topic: string, filter: PendingFilter, page: PageAsked, signal?: AbortSignal) =>
  get<MessagePage>(path('topics', topic, 'scheduled'), { ...filter, ...page }, signal)

/** The due time that a list has come to; a cursor begins with it, in hexadecimal milliseconds. */
export const dueOf = (cursor: string) => Number.parseInt(cursor, 16)

/** By the id that the server gave, or by an own id where the topic is known. */
export const readMessage = (topic: string | null, id: string, signal?: AbortSignal) =>
  get<Message>(where(topic, id), {}, signal)

export const cancelMessage = (topic: string, id: string) => remove<{ result: string }>(where(topic, id))
export const changeMessage = (topic: string, id: string, change: object) =>
  patch<Message>(where(topic, id), change)
export const deliverMessage = (topic: string, id: string) =>
  post<Message>(path('topics', topic, 'messages', id, 'deliver'))

export const changeMany = (topic: string, verb: BulkVerb, asked: object) =>
  post<BulkAnswer>(path('topics', topic, 'scheduled', verb), asked)
export const readJob = (topic: string, job: string, signal?: AbortSignal) =>
  get<BulkJob>(path('topics', topic, 'scheduled', 'jobs', job), {}, signal)
export const stopJob = (topic: string, job: string) =>
  remove<null>(path('topics', topic, 'scheduled', 'jobs', job))

export const listSeries = (topic: string, page: PageAsked, signal?: AbortSignal) =>
  get<SeriesPage>(path('topics', topic, 'series'), { ...page }, signal)

function where(topic: string | null, id: string): string {
  return topic === null ? path('messages', id) : path('topics', topic, 'messages', id)
}
