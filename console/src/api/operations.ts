// What concerns the whole broker: nodes, alerts, the record of changes.

import { get, post } from './http'
import type { PageAsked } from './messages'
import type { Alerts, AuditPage, Cluster } from './types'

export const readCluster = (slots: boolean, signal?: AbortSignal) =>
  get<Cluster>('cluster', slots ? { slots } : {}, signal)
export const readAlerts = (signal?: AbortSignal) => get<Alerts>('alerts', {}, signal)
export const testAlerts = () => post<{ webhook: 'sent' | 'failed' | 'none'; error: string | null }>('alerts/test')
export const listAudit = (asked: { topic?: string } & PageAsked, signal?: AbortSignal) =>
  get<AuditPage>('audit', { ...asked }, signal)
