// Topics: list, settings, delivered messages, sending.

import { get, patch, path, post, put, remove } from './http'
import type { DeliveredPage, Message, Topic, TopicPage } from './types'

export interface ListAsked {
  name?: string | undefined
  limit?: number
  cursor?: string | null | undefined
}

export const listTopics = (asked: ListAsked, signal?: AbortSignal) =>
  get<TopicPage>('topics', { ...asked }, signal)
export const readTopic = (topic: string, signal?: AbortSignal) =>
  get<Topic>(path('topics', topic), {}, signal)
export const createTopic = (topic: string, settings: object) =>
  put<Topic>(path('topics', topic), settings)
export const changeTopic = (topic: string, settings: object) =>
  patch<Topic>(path('topics', topic), settings)
export const deleteTopic = (topic: string) => remove<null>(path('topics', topic))

export const sendMessage = (topic: string, message: object) =>
  post<Message & { duplicate?: boolean }>(path('topics', topic, 'messages'), message)

export const readPartition = (
  topic: string,
  partition: number,
  asked: { offset: number; limit: number },
  signal?: AbortSignal,
) => get<DeliveredPage>(path('topics', topic, 'partitions', partition, 'messages'), asked, signal)

/** How far apart the two places of a search by time may be before pages are read one by one. */
const STEPS_MAX = 64

/**
 * The first offset that was delivered at `time` or later, found by halving: offsets grow with the
 * time of delivery.
 */
export async function offsetAt(topic: string, partition: number, time: number, signal?: AbortSignal) {
  const at = async (offset: number) => {
    const page = await readPartition(topic, partition, { offset, limit: 1 }, signal)
    const found = page.messages[0]
    return found ? { offset: found.offset ?? offset, time: Date.parse(found.delivered_at ?? '') } : null
  }
  const first = await at(0)
  if (!first || first.time >= time) return first?.offset ?? 0
  let below = first.offset
  let above = below + 1
  for (let step = 0; step < STEPS_MAX; step++) {
    const probe = await at(above)
    if (!probe || probe.time >= time) break
    below = probe.offset
    above = below + (above - first.offset) * 2
  }
  for (let step = 0; step < STEPS_MAX && above - below > 1; step++) {
    const middle = below + Math.floor((above - below) / 2)
    const probe = await at(middle)
    if (!probe || probe.time >= time) above = middle
    else below = Math.max(middle, probe.offset)
  }
  return above
}
