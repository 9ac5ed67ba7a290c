// Lists of groups leave out how far they are; this asks for it, a few at a time.

import { readGroup } from './groups'
import type { Group } from './types'

const AT_ONCE = 6

export const nameOf = (group: { topic: string; name: string }) => `${group.topic}/${group.name}`

/** The same groups with their standing; one that cannot be read stays as it was. */
export async function withStanding(groups: Group[], signal?: AbortSignal): Promise<Group[]> {
  const all = [...groups]
  for (let from = 0; from < all.length; from += AT_ONCE) {
    const some = all.slice(from, from + AT_ONCE)
    const read = await Promise.all(
      some.map((group) =>
        group.lag !== undefined ? group : readGroup(group.topic, group.name, signal).catch(() => group),
      ),
    )
    all.splice(from, read.length, ...read)
  }
  return all
}
