// Durations as the API writes them, in milliseconds.

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

/** Null where it is not one. */
export function spanMillis(text: string): number | null {
  if (/^\d+$/.test(text)) return Number(text)
  let total = 0
  let rest = text
  while (rest !== '') {
    const match = /^(\d+)(ms|s|m|h|d|w)/.exec(rest)
    if (!match) return null
    total += Number(match[1]) * (UNITS[match[2] as string] ?? 0)
    rest = rest.slice(match[0].length)
  }
  return total > 0 ? total : null
}
