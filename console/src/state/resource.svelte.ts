// Something that is loaded: its data, its refusal, and whether it is under way.
//
// What was shown stays while it is loaded again, so nothing jumps. Of two loads under way the
// later one counts.

import { problemFrom, type Problem } from '../api/http'

export class Resource<T> {
  data = $state.raw<T | null>(null)
  problem = $state.raw<Problem | null>(null)
  loading = $state(false)
  private aborter: AbortController | null = null

  async load(read: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.aborter?.abort()
    const aborter = new AbortController()
    this.aborter = aborter
    this.loading = true
    try {
      const data = await read(aborter.signal)
      if (this.aborter !== aborter) return
      this.data = data
      this.problem = null
    } catch (error) {
      if (this.aborter !== aborter) return
      this.problem = problemFrom(error)
    }
    this.loading = false
  }

  /** Forgets what was loaded: the next load is about something else. */
  clear() {
    this.aborter?.abort()
    this.aborter = null
    this.data = null
    this.problem = null
    this.loading = false
  }
}

/**
 * Calls now and then every `ms` while the page is visible, until the returned function is called. Work that takes
 * longer is waited for: a slow answer would otherwise always be overtaken by the next question.
 */
export function every(ms: number, work: () => Promise<unknown>): () => void {
  let busy = false
  const turn = async () => {
    if (busy) return
    busy = true
    await work()
    busy = false
  }
  void turn()
  const timer = setInterval(() => {
    if (!document.hidden) void turn()
  }, ms)
  return () => clearInterval(timer)
}
