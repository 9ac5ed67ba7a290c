// Transactions, and deciding about them by hand.

import { get, path, post } from './http'
import type { PageAsked } from './messages'
import type { Transaction, TransactionPage } from './types'

export const listTransactions = (
  asked: { state?: string; producer_group?: string } & PageAsked,
  signal?: AbortSignal,
) => get<TransactionPage>('transactions', { ...asked }, signal)
export const readTransaction = (id: string, signal?: AbortSignal) =>
  get<Transaction>(path('transactions', id), {}, signal)

export type Decision = 'commit' | 'rollback' | 'resume'

export const decide = (id: string, decision: Decision, reason: string) =>
  post<Transaction>(path('transactions', id, decision), reason ? { reason } : {})
