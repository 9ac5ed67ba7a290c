// Numbers, sizes and times in the language of the reader.

import { prefs } from '../state/prefs.svelte'

const locale = () => (prefs.language === 'zh' ? 'zh-CN' : 'en-GB')
/** In British English ten million are 10m, which reads as minutes. */
const numeric = () => (prefs.language === 'zh' ? 'zh-CN' : 'en-US')

const cache = new Map<string, Intl.NumberFormat>()

function numbers(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const name = numeric() + JSON.stringify(options)
  let found = cache.get(name)
  if (!found) cache.set(name, (found = new Intl.NumberFormat(numeric(), options)))
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

const DAY = 86_400
const HOUR = 3600
const MINUTE = 60

/** A number of seconds in its two largest units: "1 h 4 min". */
function twoUnits(seconds: number): string {
  const chinese = prefs.language === 'zh'
  const [day, hour, minute, second] = chinese ? ['天', '小时', '分', '秒'] : ['d', 'h', 'min', 's']
  const say = (large: number, unit: string | undefined, small: number, part: string | undefined) =>
    small > 0 ? `${large} ${unit} ${small} ${part}` : `${large} ${unit}`
  if (seconds >= 10 * DAY) return `${Math.floor(seconds / DAY)} ${day}`
  if (seconds >= DAY) return say(Math.floor(seconds / DAY), day, Math.floor((seconds % DAY) / HOUR), hour)
  if (seconds >= HOUR) return say(Math.floor(seconds / HOUR), hour, Math.floor((seconds % HOUR) / MINUTE), minute)
  if (seconds >= 10 * MINUTE) return `${Math.floor(seconds / MINUTE)} ${minute}`
  if (seconds >= MINUTE) return say(Math.floor(seconds / MINUTE), minute, seconds % MINUTE, second)
  return `${seconds} ${second}`
}

/** How far a time is from now: "in 1 h 4 min". */
export function relative(time: number, now: number): string {
  const seconds = Math.round((time - now) / 1000)
  const chinese = prefs.language === 'zh'
  if (seconds === 0) return chinese ? '现在' : 'now'
  const span = twoUnits(Math.abs(seconds))
  if (seconds > 0) return chinese ? `${span}后` : `in ${span}`
  return chinese ? `${span}前` : `${span} ago`
}

/** The time of day, with the date unless it is today. */
export function shortMoment(time: number, now: number): string {
  const date = new Date(time)
  const isToday = date.toDateString() === new Date(now).toDateString()
  if (isToday) return clock(time)
  const options: Intl.DateTimeFormatOptions = {
    month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', hourCycle: 'h23',
    ...(date.getFullYear() === new Date(now).getFullYear() ? {} : { year: 'numeric' }),
  }
  return new Intl.DateTimeFormat(locale(), options).format(date)
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
