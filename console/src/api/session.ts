// Who is signed in.

import { get, post, remove } from './http'
import type { Session } from './types'

export const readSession = () => get<Session>('session')
export const signIn = (token: string) => post<Session>('session', { token })
export const signOut = () => remove<null>('session')
