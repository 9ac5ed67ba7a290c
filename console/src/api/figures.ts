// Figures of the whole broker: now, to come, and of the last days.

import { address, get, path } from './http'
import type { Forecast, Stats, TrendField, Trends } from './types'

export const readStats = (limit: number, signal?: AbortSignal) => get<Stats>('stats', { limit }, signal)
export const liveAddress = () => address('live')

export interface Range {
  within: string
  steps: number
}

export const readForecast = (range: Range, signal?: AbortSignal) =>
  get<Forecast>('forecast', { ...range }, signal)
export const readTopicForecast = (topic: string, range: Partial<Range> = {}, signal?: AbortSignal) =>
  get<Forecast>(path('topics', topic, 'forecast'), { ...range }, signal)

export interface TrendsOf {
  app?: string
  topic?: string
  node?: string
  series?: TrendField[]
  from?: string
  to?: string
}

export const readTrends = ({ series, ...of }: TrendsOf, signal?: AbortSignal) =>
  get<Trends>('trends', { ...of, series: series?.join(',') }, signal)
