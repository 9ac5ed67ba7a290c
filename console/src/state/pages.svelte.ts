// Pages of a list by cursor: forward by the server's `next`, back by what was remembered.

export class Cursors {
  private stack = $state.raw<(string | null)[]>([null])

  get current(): string | null {
    return this.stack.at(-1) ?? null
  }

  get number(): number {
    return this.stack.length
  }

  next(cursor: string | null | undefined) {
    if (cursor) this.stack = [...this.stack, cursor]
  }

  back() {
    if (this.stack.length > 1) this.stack = this.stack.slice(0, -1)
  }

  reset() {
    if (this.stack.length > 1) this.stack = [null]
  }
}
