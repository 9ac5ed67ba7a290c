// A time that was asked for in a form, in the words of the API.

import { localToUtc } from './format'

export function timeFields(asked: { kind: 'delay' | 'at' | 'shift'; delay: string; at: string; shift: string }): Record<string, string> {
  if (asked.kind === 'delay') return { delay: asked.delay.trim() }
  if (asked.kind === 'at') return { deliver_at: localToUtc(asked.at) }
  return { shift: asked.shift.trim() }
}
