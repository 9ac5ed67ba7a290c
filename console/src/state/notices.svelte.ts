// Short notices about what was done, and questions before something is done.

import { problemFrom, type Problem } from '../api/http'

export interface Notice {
  number: number
  kind: 'done' | 'problem'
  text: string
  problem?: Problem
}

const SHOWN_MS = 6000
const NOTICES_MAX = 4

class Notices {
  all = $state.raw<Notice[]>([])
  private count = 0

  done(text: string) {
    const number = this.add({ kind: 'done', text })
    setTimeout(() => this.close(number), SHOWN_MS)
  }

  /** Stays until it is closed. */
  failed(error: unknown) {
    const problem = problemFrom(error)
    this.add({ kind: 'problem', text: problem.title, problem })
  }

  close(number: number) {
    this.all = this.all.filter((notice) => notice.number !== number)
  }

  private add(notice: Omit<Notice, 'number'>): number {
    this.count += 1
    this.all = [...this.all, { ...notice, number: this.count }].slice(-NOTICES_MAX)
    return this.count
  }
}

export const notices = new Notices()

export interface Question {
  title: string
  text: string
  /** What the button says: the deed, by name. */
  action: string
  danger?: boolean
  /** What has to be typed before the button works. */
  typed?: string
  /** What the deed is about, shown as it is. */
  subject?: string
}

class Asking {
  question = $state.raw<Question | null>(null)
  private answer: ((yes: boolean) => void) | null = null

  confirm(question: Question): Promise<boolean> {
    this.answer?.(false)
    this.question = question
    return new Promise((resolve) => (this.answer = resolve))
  }

  settle(yes: boolean) {
    this.answer?.(yes)
    this.answer = null
    this.question = null
  }
}

export const asking = new Asking()

/** Asks, does, and says how it went. Answers whether it was done. */
export async function askedFirst(question: Question, deed: () => Promise<unknown>, done: string): Promise<boolean> {
  if (!(await asking.confirm(question))) return false
  return attempted(deed, done)
}

/** Does it and says how it went. */
export async function attempted(deed: () => Promise<unknown>, done: string): Promise<boolean> {
  try {
    await deed()
    notices.done(done)
    return true
  } catch (error) {
    notices.failed(error)
    return false
  }
}
