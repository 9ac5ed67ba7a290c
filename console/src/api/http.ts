// The one place that talks to the server: addresses, JSON, refusals, the CSRF header.

/** A refusal as the server words it (RFC 9457), or our own words when there was no answer. */
export interface Problem {
  title: string
  detail: string
  code: string
  status: number
}

export class ApiError extends Error {
  readonly problem: Problem

  constructor(problem: Problem) {
    super(problem.detail || problem.title)
    this.problem = problem
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>

interface Options {
  query?: Query
  body?: unknown
  signal?: AbortSignal | undefined
  etag?: string | undefined
}

/** Set by the session: the token for changes, and what to do when it has ended. */
export const guard = {
  csrf: null as string | null,
  ended: () => {},
  renew: async () => {},
}

/** A path under `/v1`, with every part escaped. */
export function path(...parts: (string | number)[]): string {
  return parts.map((part) => encodeURIComponent(part)).join('/')
}

export const get = <T>(where: string, query: Query = {}, signal?: AbortSignal) =>
  ask<T>('GET', where, { query, signal })
export const post = <T>(where: string, body: unknown = {}) => ask<T>('POST', where, { body })
export const put = <T>(where: string, body: unknown = {}) => ask<T>('PUT', where, { body })
export const patch = <T>(where: string, body: unknown = {}, etag?: string) =>
  ask<T>('PATCH', where, { body, etag })
export const remove = <T>(where: string) => ask<T>('DELETE', where, {})

export function address(where: string, query: Query = {}): string {
  const url = new URL(`v1/${where}`, document.baseURI)
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(name, `${value}`)
  }
  return url.href
}

async function ask<T>(method: string, where: string, options: Options, again = true): Promise<T> {
  const headers: Record<string, string> = { accept: 'application/json' }
  if (method !== 'GET' && guard.csrf) headers['x-punctual-csrf'] = guard.csrf
  if (options.etag) headers['if-match'] = options.etag
  const init: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' }
  if (options.signal) init.signal = options.signal
  if (options.body !== undefined) {
    headers['content-type'] = 'application/json'
    init.body = JSON.stringify(options.body)
  }
  let answer: Response
  try {
    answer = await fetch(address(where, options.query), init)
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError({ title: 'No answer', detail: String(error), code: 'network', status: 0 })
  }
  if (answer.ok) return (await read(answer)) as T
  const problem = await problemOf(answer)
  if (problem.code === 'csrf' && again) {
    await guard.renew()
    return ask(method, where, options, false)
  }
  if (answer.status === 401) guard.ended()
  throw new ApiError(problem)
}

async function read(answer: Response): Promise<unknown> {
  const text = await answer.text()
  if (text === '') return null
  try {
    return JSON.parse(text)
  } catch {
    const detail = `${answer.url}: ${text.slice(0, 200)}`
    throw new ApiError({ title: 'Not JSON', detail, code: 'not_json', status: answer.status })
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  const plain = {
    title: answer.statusText || `HTTP ${answer.status}`,
    detail: '',
    code: `http_${answer.status}`,
    status: answer.status,
  }
  try {
    const told: unknown = await answer.json()
    if (typeof told !== 'object' || told === null) return plain
    const field = (name: string) => {
      const value = (told as Record<string, unknown>)[name]
      return typeof value === 'string' ? value : undefined
    }
    return {
      title: field('title') ?? plain.title,
      detail: field('detail') ?? '',
      code: field('code') ?? plain.code,
      status: answer.status,
    }
  } catch {
    return plain
  }
}

/** Whatever was thrown, as a problem to show. */
export function problemFrom(error: unknown): Problem {
  if (error instanceof ApiError) return error.problem
  return { title: 'Unexpected', detail: String(error), code: 'console', status: 0 }
}
