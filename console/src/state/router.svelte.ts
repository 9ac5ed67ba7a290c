// Where we are: the part of the address after `#`, as path and parameters.

export type Parameters = Record<string, string>

interface Place {
  parts: string[]
  query: Parameters
}

function parse(hash: string): Place {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s)
  const parts = path.split('/').filter((part) => part !== '').map(decoded)
  return { parts, query: Object.fromEntries(new URLSearchParams(search)) }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** The address of a page, for links. */
export function href(parts: string[], query: Parameters = {}): string {
  const path = parts.map((part) => encodeURIComponent(part)).join('/')
  const given = Object.entries(query).filter(([, value]) => value !== '')
  const search = new URLSearchParams(given).toString()
  return `#/${path}${search ? `?${search}` : ''}`
}

class Router {
  private place = $state.raw<Place>(parse(location.hash))
  /** Counts links and steps in the history, but not amendments: a page whose filter is in the address begins anew with each. */
  visit = $state(0)

  constructor() {
    window.addEventListener('hashchange', () => {
      this.place = parse(location.hash)
      this.visit += 1
    })
  }

  get page(): string {
    return this.place.parts[0] ?? ''
  }

  part(index: number): string | undefined {
    return this.place.parts[index]
  }

  get query(): Parameters {
    return this.place.query
  }

  go(parts: string[], query: Parameters = {}) {
    location.hash = href(parts, query)
  }

  /** Changes parameters of this page without a step in the history. */
  amend(change: Parameters) {
    const query = { ...this.place.query, ...change }
    history.replaceState(null, '', href(this.place.parts, query))
    this.place = parse(location.hash)
  }
}

export const router = new Router()
