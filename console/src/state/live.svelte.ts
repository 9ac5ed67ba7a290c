// The figures of the moment, once a second, and the last minutes of them.
//
// They come as events. A broker without that stream is asked for its figures instead, and the
// rates are worked out from two answers. Nothing is open while nobody looks.

import { liveAddress, readStats } from '../api/figures'
import { problemFrom, type Problem } from '../api/http'
import type { Live, Stats, Totals } from '../api/types'

const SAMPLES_MAX = 600
const POLL_MS = 2000
const RETRY_MS = 5000

export interface Sample {
  at: number
  scheduled: number
  fired: number
  delivered: number
}

class LiveState {
  figures = $state.raw<Live | null>(null)
  problem = $state.raw<Problem | null>(null)
  connected = $state(false)
  samples = $state.raw<Sample[]>([])

  private users = 0
  private source: EventSource | null = null
  private timer: ReturnType<typeof setTimeout> | undefined
  private before: Stats | null = null

  constructor() {
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) this.close()
      else if (this.users > 0) this.open()
    })
  }

  /** Keeps the figures coming until the returned function is called. */
  watch(): () => void {
    this.users += 1
    if (this.users === 1) this.open()
    return () => {
      this.users -= 1
      if (this.users > 0) return
      this.close()
      // Whoever signs in next begins without figures of the one before.
      this.figures = null
      this.samples = []
    }
  }

  private open() {
    this.close()
    const source = new EventSource(liveAddress(), { withCredentials: true })
    this.source = source
    source.addEventListener('figures', (event) => {
      try {
        this.take(JSON.parse((event as MessageEvent<string>).data) as Live)
      } catch (error) {
        this.problem = problemFrom(error)
      }
    })
    source.addEventListener('error', () => {
      this.connected = false
      // A stream that broke off is opened again by the browser; one that was refused is not.
      if (source.readyState === EventSource.CLOSED && this.source === source) this.again(0)
    })
  }

  private close() {
    this.source?.close()
    this.source = null
    this.before = null
    this.connected = false
    clearTimeout(this.timer)
  }

  private again(ms: number) {
    this.source = null
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.poll(), ms)
  }

  private async poll() {
    try {
      const stats = await readStats(1)
      if (this.users === 0 || this.source) return
      const before = this.before
      this.before = stats
      this.take({ ...stats, rates: before ? rates(before, stats) : zero() })
      this.again(POLL_MS)
    } catch (error) {
      this.problem = problemFrom(error)
      this.connected = false
      if (this.problem.status === 0 || this.problem.status >= 500) {
        clearTimeout(this.timer)
        this.timer = setTimeout(() => this.users > 0 && this.open(), RETRY_MS)
      }
    }
  }

  private take(figures: Live) {
    this.figures = figures
    this.connected = true
    this.problem = null
    const { scheduled, fired, delivered } = figures.rates
    const sample = { at: Date.parse(figures.now) / 1000, scheduled, fired, delivered }
    const last = this.samples.at(-1)
    const kept = last && sample.at <= last.at ? [] : this.samples
    this.samples = [...kept.slice(1 - SAMPLES_MAX), sample]
  }
}

function zero(): Totals {
  return { scheduled: 0, fired: 0, delivered: 0, received: 0, acked: 0, cancelled: 0, skipped: 0, retried: 0, dead: 0 }
}

function rates(before: Stats, now: Stats): Totals {
  const seconds = Math.max(0.001, (Date.parse(now.now) - Date.parse(before.now)) / 1000)
  const all = zero()
  for (const name of Object.keys(all) as (keyof Totals)[]) {
    all[name] = Math.max(0, now.totals[name] - before.totals[name]) / seconds
  }
  return all
}

export const live = new LiveState()
