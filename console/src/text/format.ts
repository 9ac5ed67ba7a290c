// Numbers, sizes and times in the language of the reader.

import { prefs } from '../state/prefs.svelte'

const locale = () => (prefs.language === 'zh' ? 'zh-CN' : 'en-GB')

const cache = new Map<string, Intl.NumberFormat>()

function numbers(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const name = locale() + JSON.stringify(options)
  let found = cache.get(name)
  if (!found) cache.set(name, (found = new Intl.NumberFormat(locale(), options)))
  return found
}

export const NONE = '–'

/** A whole number, grouped. */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : numbers({ maximumFractionDigits: 0 }).format(value)
}

/** A large number in few characters. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE
  if (Math.abs(value) < 10_000) return numbers({ maximumFractionDigits: 1 }).format(value)
  return numbers({ notation: 'compact', maximumFractionDigits: 1 }).format(value)
}

/** Something a second. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE
  const digits = value > 0 && value < 10 ? 1 : 0
  return numbers({ maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value)
}

export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE
  return numbers({ style: 'percent', maximumFractionDigits: value > 0.99 && value < 1 ? 2 : 1 }).format(value)
}

/** Milliseconds, in the unit that reads best. */
export function millis(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE
  const say = (number: number, unit: string) =>
    `${numbers({ maximumFractionDigits: number < 10 ? 1 : 0 }).format(number)} ${unit}`
  if (value < 1000) return say(value, 'ms')
  if (value < 60_000) return say(value / 1000, 's')
  if (value < 3_600_000) return say(value / 60_000, 'min')
  if (value < 86_400_000) return say(value / 3_600_000, 'h')
  return say(value / 86_400_000, 'd')
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE
  let unit = 0
  let number = value
  while (number >= 1000 && unit < UNITS.length - 1) {
    number /= 1000
    unit += 1
  }
  const digits = unit > 0 && number < 10 ? 1 : 0
  return `${numbers({ maximumFractionDigits: digits }).format(number)} ${UNITS[unit]}`
}

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1],
]

/** How far a time is from now: "in 5 minutes". */
export function relative(time: number, now: number): string {
  const seconds = Math.round((time - now) / 1000)
  const [unit, size] = STEPS.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1]
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: 'auto', style: 'short' })
  return format.format(Math.trunc(seconds / size), unit)
}

/** Date and time of day, in the zone of the reader. */
export function moment(time: number, precise = false): string {
  const date = new Date(time)
  if (Number.isNaN(date.getTime())) return NONE
  const options: Intl.DateTimeFormatOptions = {
    year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit',
    hourCycle: 'h23',
  }
  if (precise) options.fractionalSecondDigits = 3
  return new Intl.DateTimeFormat(locale(), options).format(date)
}

/** Only the time of day. */
export function clock(time: number): string {
  const options: Intl.DateTimeFormatOptions = {
    hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
  }
  return new Intl.DateTimeFormat(locale(), options).format(new Date(time))
}

export function utc(time: number): string {
  const date = new Date(time)
  return Number.isNaN(date.getTime()) ? NONE : date.toISOString().replace('T', ' ').replace('Z', ' UTC')
}

/** What a field for local date and time holds, as RFC 3339; empty where it holds nothing. */
export function localToUtc(value: string): string {
  const time = new Date(value)
  return value === '' || Number.isNaN(time.getTime()) ? '' : time.toISOString()
}

/** Puts values into the places `{name}` of a sentence. */
export function fill(sentence: string, values: Record<string, string | number>): string {
  return sentence.replace(/\{(\w+)\}/g, (whole, name: string) => `${values[name] ?? whole}`)
}
