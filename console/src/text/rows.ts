// Bodies cut into rows of bounded length, so that showing them costs what is on the screen.

const ROW_CHARS = 160
const BYTES_A_ROW = 16

/** Rows of a text: its lines, the long ones broken hard. */
export function textRows(text: string): string[] {
  const rows: string[] = []
  let start = 0
  while (start <= text.length) {
    let end = text.indexOf('\n', start)
    if (end === -1) end = text.length
    if (end === start) rows.push('')
    for (let from = start; from < end; ) {
      let to = Math.min(end, from + ROW_CHARS)
      const last = text.charCodeAt(to - 1)
      if (to < end && last >= 0xd800 && last <= 0xdbff) to -= 1
      rows.push(text.slice(from, to))
      from = to
    }
    start = end + 1
  }
  return rows
}

export interface HexRow {
  offset: string
  hex: string
  text: string
}

export const hexRowCount = (bytes: Uint8Array) => Math.ceil(bytes.length / BYTES_A_ROW)

/** One row of a hex dump, made when it comes into view. */
export function hexRow(bytes: Uint8Array, row: number): HexRow {
  const part = bytes.subarray(row * BYTES_A_ROW, (row + 1) * BYTES_A_ROW)
  let hex = ''
  let text = ''
  for (let index = 0; index < BYTES_A_ROW; index++) {
    const byte = part[index]
    if (index === BYTES_A_ROW / 2) hex += ' '
    hex += byte === undefined ? '   ' : `${byte.toString(16).padStart(2, '0')} `
    if (byte !== undefined) text += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '·'
  }
  return { offset: (row * BYTES_A_ROW).toString(16).padStart(8, '0'), hex, text }
}
