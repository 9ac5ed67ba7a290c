// What the server answers, field by field as in `/openapi.json`.

export type Verb =
  | 'send' | 'read' | 'cancel' | 'change' | 'consume'
  | 'see' | 'manage' | 'observe' | 'audit' | 'admin'

export const VERBS: Verb[] = [
  'send', 'read', 'cancel', 'change', 'consume', 'see', 'manage', 'observe', 'audit', 'admin',
]

export interface Permission {
  topics: string
  groups?: string | null
  verbs: Verb[]
}

export interface Session {
  auth: boolean
  signed_in: boolean
  app: string | null
  permissions: Permission[]
  csrf: string | null
  expires_at: string | null
  mode: 'single' | 'cluster'
  outlet: 'log' | 'kafka'
  version: string
}

export interface Totals {
  scheduled: number
  fired: number
  delivered: number
  received: number
  acked: number
  cancelled: number
  skipped: number
  retried: number
  dead: number
}

export interface Latency {
  p50_ms: number | null
  p99_ms: number | null
  count: number
}

export interface Live {
  now: string
  pending: number
  lag: number
  in_flight: number
  retrying: number
  dead_letters: number
  topic_count: number
  group_count: number
  app_count: number
  totals: Totals
  rates: Totals
  lateness: Latency
  success_rate?: number | null
  memory_bytes: number | null
  store_bytes: number
  alerts_firing?: number
  node?: string
}

export interface Stats {
  now: string
  started_at: string
  uptime: string
  version: string
  virtual: boolean
  topic_count: number
  group_count: number
  app_count: number
  pending: number
  lag: number
  in_flight: number
  retrying: number
  dead_letters: number
  totals: Totals
  lateness: Latency
  journal_sync: Latency
  memory_bytes: number | null
  store_bytes: number
  connections: { open: number; max: number }
  topics: { name: string; pending: number }[]
  groups: GroupFigures[]
}

export interface GroupFigures {
  topic: string
  name: string
  lag: number
  in_flight: number
  retrying: number
  dead: number
}

export interface Forecast {
  total: number
  paused: number
  prepared: number
  due: { within: string; count: number }[]
  later: number
  steps?: { until: string; count: number }[]
}

export type TrendField =
  | 'scheduled' | 'fired' | 'delivered' | 'acked' | 'cancelled' | 'retried' | 'dead' | 'pending'
  | 'bytes' | 'refused' | 'entries' | 'slots' | 'memory_bytes' | 'store_bytes' | 'disk_free_bytes'
  | 'journal_p99_ms' | 'lateness_p99_ms'

export type TrendPoint = { at: string } & Partial<Record<TrendField, number | null>>

export interface Trends {
  interval: string
  points: TrendPoint[]
}

export type CatchUp = 'all' | 'latest' | { spread: string } | { skip_older_than: string }

export interface CheckPolicy {
  first: string
  interval: string
  max: number
  url?: string | null
}

export interface TopicTotals {
  scheduled: number
  fired: number
  delivered: number
  cancelled: number
  retried: number
  dead: number
}

export type Overflow = 'refuse' | 'drop_oldest' | 'dead_letter_newest'

export interface Topic {
  name: string
  kind: 'plain' | 'dead'
  partitions: number
  retention: string
  retention_bytes?: number | null
  default_ttl?: string | null
  max_backlog?: { messages?: number | null; bytes?: number | null } | null
  overflow: Overflow
  max_delay?: string | null
  rate_cap?: number | null
  jitter?: string | null
  catch_up: CatchUp
  levels?: string[] | null
  check?: CheckPolicy | null
  paused: boolean
  pending?: number | null
  /** Not there where only Kafka knows. */
  backlog?: number
  totals?: TopicTotals
}

export interface TopicPage {
  topics: Topic[]
  next: string | null
}

export type HeaderList = { name: string; value?: string; value_base64?: string }[]

export interface Content {
  key?: string
  key_base64?: string
  headers?: Record<string, string> | HeaderList
  ttl?: string
  max_attempts?: number
  catch_up?: CatchUp
  body?: string
  body_base64?: string
}

export type MessageState = 'scheduled' | 'paused' | 'prepared' | 'delivered' | 'cancelled'

export interface Message extends Content {
  id: string
  own_id?: string
  topic: string
  state?: MessageState
  due?: string
  version?: number
  remaining?: string
  series?: string
  transaction?: string
  delivered_at?: string
  partition: number
  offset?: number
  app?: string
  repeat?: Repeat
  number?: number
  occurrence?: string | null
}

export interface Repeat {
  every?: string
  cron?: string
  zone?: string
  count?: number
  until?: string
}

export interface MessagePage {
  messages: Message[]
  next: string | null
}

export interface DeliveredPage {
  messages: Message[]
  next: number
}

export interface PendingFilter {
  from?: string
  to?: string
  key?: string
  key_prefix?: string
  state?: string
  app?: string
}

export type BulkVerb = 'cancel' | 'reschedule' | 'deliver' | 'pause' | 'resume'

export interface BulkAnswer {
  matched: number
  failed: number
  job: string
  state: JobState
}

export type JobState = 'running' | 'done' | 'stopped' | 'failed'

export interface BulkJob {
  job: string
  kind: string
  dry_run: boolean
  state: JobState
  started: string
  matched: number
  done: number
  failed: number
  error?: string
}

export type RetryPolicy =
  | { ladder: string[] }
  | { exponential: { first: string; max: string; factor: number; jitter: number } }

export interface Group {
  name: string
  topic: string
  ordered: boolean
  retry: RetryPolicy
  max_attempts: number
  lease: string
  paused: boolean
  push: { url: string; secret_set: boolean; concurrency: number; timeout: string } | null
  dead_topic: string
  lag: number
  in_flight: number
  retrying: number
  dead: number
  oldest_unacked?: string | null
  oldest_unacked_age?: string | null
  partitions?: { partition: number; cursor: number; end: number; lag: number }[]
}

export interface GroupPage {
  groups: Group[]
  next: string | null
}

export type DeadReason = 'rejected' | 'expired' | 'overflow' | 'attempts_exhausted'

export interface DeadLetter extends Content {
  id: string
  topic: string
  partition: number
  offset: number
  due: string
  delivered_at: string
  reason: DeadReason | null
  attempts: number
  first_error: string | null
  last_error: string | null
  died_at: string
}

export interface DeadPage {
  messages: DeadLetter[]
  next: string | null
}

export interface DeadSummary {
  total: number
  days: { day: string; reason: string; count: number }[]
}

export interface DeadFilter {
  reason?: string
  from?: string
  to?: string
  day?: string
  key?: string
  id?: string
}

export interface GroupJob {
  job: string
  kind: string
  state: 'running' | 'done' | 'failed'
  started: string
  matched: number
  done: number
  error?: string
}

export type TransactionState = 'prepared' | 'committed' | 'rolled_back' | 'unresolved'

export interface Transaction {
  id: string
  producer_group: string
  state: TransactionState
  created: string
  decided?: string
  checks_sent: number
  check: CheckPolicy
  next_check?: string
  messages: { topic: string | null; id: string }[]
}

export interface TransactionPage {
  transactions: Transaction[]
  next: string | null
}

export interface SeriesPage {
  series: Message[]
  next: string | null
}

export interface Quotas {
  messages_per_second?: number | null
  bytes_per_second?: number | null
  pending?: number | null
  connections?: number | null
}

export interface App {
  key: string
  enabled: boolean
  built_in: boolean
  permissions: Permission[]
  quotas: Quotas
  created: string
  rotated?: string
  old_secret_until?: string
  totals?: { scheduled: number; bytes: number; refused: number }
}

export interface IssuedApp extends App {
  secret: string
  token: string
}

export interface AppPage {
  apps: App[]
  next: string | null
}

export interface ClusterNode {
  id: string
  address: string
  version: string
  started_at: string
  state: string
  slots: number
  term: number
}

export interface Cluster {
  mode: 'single' | 'cluster'
  node: string
  leader: string | null
  nodes: ClusterNode[]
  lost?: ClusterNode[]
  slots: { total: number; wanted: number; unowned: number; moving: number; retired: number }
  assignment?: { slot: number; owner: string | null; term: number; next: string | null }[]
  memory: { slots: number; entries: number; bytes: number; frontier: string | null }
  history: { at: string; event: string; node: string | null; slots: number }[]
}

export interface AlertRule {
  name: string
  about: string
  unit: string
  threshold: number
  for: string
  enabled: boolean
  state: 'ok' | 'pending' | 'firing'
  value: number | null
  since: string | null
  detail: string | null
}

export interface Alerts {
  rules: AlertRule[]
  history: { rule: string; event: 'firing' | 'resolved' | 'test'; at: string; value: number | null; detail: string | null }[]
  webhook: { configured: boolean; last: { at: string; ok: boolean; error: string | null } | null }
}

export interface AuditEntry {
  at: string
  who: string
  what: string
  topic?: string
  details: Record<string, string>
}

export interface AuditPage {
  entries: AuditEntry[]
  next: string | null
}
