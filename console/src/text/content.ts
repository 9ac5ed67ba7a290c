// Keys, headers and bodies of messages as text or bytes, whichever they came as.

import type { Content } from '../api/types'

export function bytesOf(base64: string): Uint8Array {
  try {
    return Uint8Array.from(atob(base64), (mark) => mark.charCodeAt(0))
  } catch {
    return new Uint8Array()
  }
}

export function bodyBytes(content: Content): Uint8Array {
  if (content.body_base64 !== undefined) return bytesOf(content.body_base64)
  return new TextEncoder().encode(content.body ?? '')
}

export interface HeaderRow {
  name: string
  value: string
  isBase64: boolean
}

export function headerRows(headers: Content['headers']): HeaderRow[] {
  if (!headers) return []
  if (!Array.isArray(headers)) {
    return Object.entries(headers).map(([name, value]) => ({ name, value, isBase64: false }))
  }
  return headers.map(({ name, value, value_base64 }) => ({
    name,
    value: value ?? value_base64 ?? '',
    isBase64: value === undefined,
  }))
}

/** The key to show: base 64 where it is not text. */
export function keyOf(content: Content): string | undefined {
  return content.key ?? content.key_base64
}

/** Offers bytes as a file. */
export function download(bytes: Uint8Array, name: string) {
  const url = URL.createObjectURL(new Blob([bytes.slice().buffer], { type: 'application/octet-stream' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name.replace(/[^\w.-]/g, '_')
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
