// The settings of a group as fields of a form, and back to what the API takes.

import type { Group } from '../../api/types'

export interface GroupFields {
  ordered: boolean
  lease: string
  attempts: string
  retry: 'ladder' | 'exponential'
  ladder: string
  first: string
  max: string
  factor: string
  jitter: string
  start: 'earliest' | 'latest'
  push: boolean
  url: string
  secret: string
  concurrency: string
  timeout: string
}

const LADDER = '10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h'

export function fieldsOf(group: Group | null): GroupFields {
  const retry = group?.retry
  const growing = retry && 'exponential' in retry ? retry.exponential : null
  return {
    ordered: group?.ordered ?? false,
    lease: group?.lease ?? '1m',
    attempts: group ? `${group.max_attempts}` : '',
    retry: growing ? 'exponential' : 'ladder',
    ladder: retry && 'ladder' in retry ? retry.ladder.join(' ') : LADDER,
    first: growing?.first ?? '1s',
    max: growing?.max ?? '2h',
    factor: `${growing?.factor ?? 2}`,
    jitter: `${growing?.jitter ?? 0.2}`,
    start: 'earliest',
    push: group?.push != null,
    url: group?.push?.url ?? '',
    secret: '',
    concurrency: `${group?.push?.concurrency ?? 8}`,
    timeout: group?.push?.timeout ?? '30s',
  }
}

/** Every setting in the words of the API; `start` only for a new group. */
export function settingsOf(fields: GroupFields, isNew: boolean): Record<string, unknown> {
  const settings: Record<string, unknown> = {
    ordered: fields.ordered,
    lease: fields.lease.trim(),
    retry:
      fields.retry === 'ladder'
        ? { ladder: fields.ladder.trim().split(/[\s,]+/) }
        : {
            exponential: {
              first: fields.first.trim(), max: fields.max.trim(), factor: Number(fields.factor), jitter: Number(fields.jitter),
            },
          },
    push: fields.push
      ? {
          url: fields.url.trim(),
          concurrency: Number(fields.concurrency),
          timeout: fields.timeout.trim(),
          ...(fields.secret ? { secret: fields.secret } : {}),
        }
      : null,
  }
  if (fields.attempts.trim()) settings.max_attempts = Number(fields.attempts)
  if (isNew && fields.start === 'latest') settings.start = 'latest'
  return settings
}
