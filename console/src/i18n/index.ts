// The words of the console in the chosen language.

import { prefs } from '../state/prefs.svelte'
import { en } from './en'
import { zh } from './zh'

/** Every language has exactly these words; a missing one does not compile. */
export type Words = Widened<typeof en>

type Widened<T> = { [K in keyof T]: T[K] extends string ? string : Widened<T[K]> }

export function t(): Words {
  return prefs.language === 'zh' ? zh : en
}
