// A list that comes page by page, forward by the server's `next`, back by what was remembered.
//
// For one answer the server looks at a bounded number of entries. Where a filter leaves few of them, an
// answer may be short, or empty, and have a `next` all the same: that means "go on". So a page is put
// together from as many answers as it takes, until it is full, the end is reached, or somebody stops it.

import { untrack } from 'svelte'

import { problemFrom, type Problem } from '../api/http'

const REFRESH_MS = 5000

export interface Asked {
  limit: number
  cursor: string | null
}

interface Answer<T> {
  rows: T[]
  next: string | null
}

interface Options<T> {
  /** What tells one row from another; a row that was moved while a page is put together comes twice. */
  key?: (row: T) => string
  /** Most rows of a page. */
  limit?: number
  /** Whether there is a filter: a page without one has what the first answer brings. */
  isFiltered?: () => boolean
}

export class Listing<T> {
  rows = $state.raw<T[]>([])
  /** Where the next page begins; while this one is put together, how far that is. */
  next = $state.raw<string | null>(null)
  problem = $state.raw<Problem | null>(null)
  /** Whether there was an answer. */
  loaded = $state(false)
  loading = $state(false)
  /** Whether one answer was not enough, and more are asked for. */
  searching = $state(false)
  stopped = $state(false)
  private stack = $state.raw<(string | null)[]>([null])
  /** Where the first answer with rows began: what is before it is not searched again. */
  private from: string | null = null
  /** How many answers this page took, and how many of them had rows. */
  private answers = 0
  private hits = 0
  private aborter: AbortController | null = null

  constructor(
    private readonly read: (asked: Asked, signal: AbortSignal) => Promise<Answer<T>>,
    private readonly options: Options<T> = {},
  ) {}

  get key(): ((row: T) => string) | undefined {
    return this.options.key
  }

  /** The number of the page. */
  get number(): number {
    return this.stack.length
  }

  /** Where the page begins. */
  get place(): string | null {
    return this.stack.at(-1) ?? null
  }

  forward() {
    if (this.next) this.stack = [...this.stack, this.next]
  }

  back() {
    if (this.stack.length > 1) this.stack = this.stack.slice(0, -1)
  }

  /** To the first page, which begins here. */
  reset(place: string | null = null) {
    if (this.stack.length > 1 || this.place !== place) this.stack = [place]
  }

  /** Forgets what was loaded: the next page is one of something else. */
  clear() {
    this.end()
    this.rows = []
    this.next = null
    this.problem = null
    this.loaded = false
  }

  /** For an effect: loads the page, keeps it fresh, and begins again with another page. */
  watch(): () => void {
    void this.stack
    untrack(() => this.again())
    const timer = setInterval(() => {
      if (!document.hidden) this.refresh()
    }, REFRESH_MS)
    return () => {
      clearInterval(timer)
      this.end()
    }
  }

  /** Searches from where the page begins. */
  again = () => {
    this.from = this.place
    void this.run(this.place)
  }

  /** Loads what is shown once more. */
  load = () => void this.run(this.from)

  /** Goes on where it was stopped. */
  goOn = () => void this.run(this.next, 'on')

  stop = () => {
    this.stopped = this.searching
    this.end()
  }

  /** By the clock, and never more than one answer where the page took several. */
  private refresh() {
    if (this.loading) return
    if (this.answers <= 1 && !this.stopped) this.load()
    else if (this.hits === 1) void this.run(this.from, 'once')
  }

  private async run(from: string | null, how: 'anew' | 'on' | 'once' = 'anew') {
    this.aborter?.abort()
    const aborter = new AbortController()
    this.aborter = aborter
    this.loading = true
    if (how !== 'once') this.stopped = false
    if (how === 'anew') this.answers = this.hits = 0
    if (how === 'on') this.searching = true
    const { limit = 50, isFiltered = () => false } = this.options
    const enough = isFiltered() ? limit : 1
    let rows = how === 'on' ? this.rows : []
    let cursor = from
    try {
      do {
        const answer = await this.read({ limit: limit - rows.length, cursor }, aborter.signal)
        if (this.aborter !== aborter) return
        if (rows.length === 0) this.from = cursor
        rows = [...this.without(rows, answer.rows), ...answer.rows]
        cursor = answer.next
        this.rows = rows
        this.problem = null
        this.loaded = true
        if (how !== 'once' || rows.length === limit) this.next = cursor
        if (how === 'once') break
        this.answers += 1
        if (answer.rows.length > 0) this.hits += 1
        this.searching = cursor !== null && rows.length < enough
      } while (this.searching)
    } catch (error) {
      if (this.aborter !== aborter) return
      this.problem = problemFrom(error)
    }
    this.loading = false
    this.searching = false
  }

  private without(rows: T[], others: T[]): T[] {
    const { key } = this.options
    if (!key) return rows
    const gone = new Set(others.map(key))
    return rows.filter((row) => !gone.has(key(row)))
  }

  private end() {
    this.aborter?.abort()
    this.aborter = null
    this.loading = false
    this.searching = false
  }
}
