// The settings of a topic as fields of a form, and back to what the API takes.

import type { CatchUp, Overflow, Topic } from '../../api/types'

export interface TopicFields {
  partitions: string
  retention: string
  retentionBytes: string
  defaultTtl: string
  maxDelay: string
  rateCap: string
  jitter: string
  backlogMessages: string
  backlogBytes: string
  overflow: Overflow
  catchUp: 'all' | 'latest' | 'spread' | 'skip_older_than'
  catchUpTime: string
  levels: string
  check: 'default' | 'own'
  checkFirst: string
  checkInterval: string
  checkMax: string
  paused: boolean
}

export function fieldsOf(topic: Topic | null): TopicFields {
  const text = (value: string | number | null | undefined, absent: string) => `${value ?? absent}`
  const catchUp = topic?.catch_up ?? 'all'
  return {
    partitions: text(topic?.partitions, '4'),
    retention: text(topic?.retention, '7d'),
    retentionBytes: text(topic?.retention_bytes, 'forever'),
    defaultTtl: text(topic?.default_ttl, 'forever'),
    maxDelay: text(topic?.max_delay, 'none'),
    rateCap: text(topic?.rate_cap, 'none'),
    jitter: text(topic?.jitter, 'none'),
    backlogMessages: text(topic?.max_backlog?.messages, ''),
    backlogBytes: text(topic?.max_backlog?.bytes, ''),
    overflow: topic?.overflow ?? 'refuse',
    ...catchUpFields(catchUp),
    levels: topic?.levels?.join(' ') ?? 'default',
    check: topic?.check ? 'own' : 'default',
    checkFirst: text(topic?.check?.first, '6s'),
    checkInterval: text(topic?.check?.interval, '30s'),
    checkMax: text(topic?.check?.max, '15'),
    paused: topic?.paused ?? false,
  }
}

function catchUpFields(catchUp: CatchUp): Pick<TopicFields, 'catchUp' | 'catchUpTime'> {
  if (typeof catchUp === 'string') return { catchUp, catchUpTime: '10m' }
  if ('spread' in catchUp) return { catchUp: 'spread', catchUpTime: catchUp.spread }
  return { catchUp: 'skip_older_than', catchUpTime: catchUp.skip_older_than }
}

/** A number where it is one; otherwise the word, for the server to judge. */
const numberOr = (text: string) => (/^\d+$/.test(text.trim()) ? Number(text) : text.trim())

/** Every setting in the words of the API. */
export function settingsOf(fields: TopicFields): Record<string, unknown> {
  const bounded = fields.backlogMessages.trim() || fields.backlogBytes.trim()
  const backlog: Record<string, unknown> = {}
  if (fields.backlogMessages.trim()) backlog.messages = numberOr(fields.backlogMessages)
  if (fields.backlogBytes.trim()) backlog.bytes = numberOr(fields.backlogBytes)
  const timed = fields.catchUp === 'spread' || fields.catchUp === 'skip_older_than'
  return {
    partitions: numberOr(fields.partitions),
    retention: fields.retention.trim(),
    retention_bytes: numberOr(fields.retentionBytes),
    default_ttl: fields.defaultTtl.trim(),
    max_delay: fields.maxDelay.trim(),
    rate_cap: numberOr(fields.rateCap),
    jitter: fields.jitter.trim(),
    max_backlog: bounded ? backlog : 'none',
    overflow: fields.overflow,
    catch_up: timed ? { [fields.catchUp]: fields.catchUpTime.trim() } : fields.catchUp,
    levels: fields.levels.trim() === 'default' ? 'default' : fields.levels.trim().split(/[\s,]+/),
    check:
      fields.check === 'default'
        ? 'default'
        : { first: fields.checkFirst.trim(), interval: fields.checkInterval.trim(), max: numberOr(fields.checkMax) },
    paused: fields.paused,
  }
}

/** Only what differs, so that changes of others are not undone. */
export function changed(before: Record<string, unknown>, after: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])),
  )
}
