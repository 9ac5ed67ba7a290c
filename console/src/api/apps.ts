// Apps, their rights and their secrets.

import { get, patch, path, post, remove } from './http'
import type { PageAsked } from './messages'
import type { App, AppPage, IssuedApp, Permission, Quotas } from './types'

export interface Rights {
  permissions: Permission[]
  quotas: Quotas
}

export const listApps = (asked: PageAsked, signal?: AbortSignal) => get<AppPage>('apps', { ...asked }, signal)
export const readApp = (key: string, signal?: AbortSignal) => get<App>(path('apps', key), {}, signal)
export const createApp = (key: string, rights: Rights) => post<IssuedApp>('apps', { key, ...rights })
export const changeApp = (key: string, rights: Rights) => patch<App>(path('apps', key), rights)
export const rotateApp = (key: string, keepOld: string) =>
  post<IssuedApp>(path('apps', key, 'rotate'), keepOld ? { keep_old: keepOld } : {})
export const disableApp = (key: string) => post<App>(path('apps', key, 'disable'))
export const enableApp = (key: string) => post<App>(path('apps', key, 'enable'))
export const deleteApp = (key: string) => remove<null>(path('apps', key))
