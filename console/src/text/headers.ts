// Headers as lines of a text field, `name: value`, and back.

import type { Content, HeaderList } from '../api/types'
import { headerRows } from './content'

export function headersFrom(text: string): HeaderList {
  return text.split('\n').filter((line) => line.trim() !== '').map((line) => {
    const colon = line.indexOf(':')
    if (colon === -1) return { name: line.trim(), value: '' }
    return { name: line.slice(0, colon).trim(), value: line.slice(colon + 1).trim() }
  })
}

/** Null where a line could not stand for them: bytes, line ends, spaces at the edges. */
export function headersAsText(headers: Content['headers']): string | null {
  const rows = headerRows(headers)
  const plain = rows.every(
    ({ name, value, isBase64 }) => !isBase64 && !name.includes(':') && name.trim() === name && value.trim() === value && !/[\r\n]/.test(name + value),
  )
  return plain ? rows.map(({ name, value }) => `${name}: ${value}`).join('\n') : null
}
