// Foreign text made visible: what has no shape of its own, or changes the order of what is around
// it, is shown as an escape. Nothing here ever becomes markup.

/** Controls, invisible marks, marks of direction, separators, halves of pairs, tags. */
const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff]|[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]/g

const SHORT: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\0': '\\0' }

export interface Piece {
  text: string
  hidden: boolean
}

function isTag(pair: string): boolean {
  const point = pair.codePointAt(0) ?? 0
  return point >= 0xe0000 && point <= 0xe0fff
}

function escape(mark: string): string {
  const short = SHORT[mark]
  if (short) return short
  const point = mark.codePointAt(0) ?? 0
  return point > 0xffff ? `\\u{${point.toString(16)}}` : `\\u${point.toString(16).padStart(4, '0')}`
}

/** The text in pieces, each shown as it is or as an escape. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = []
  let start = 0
  for (const match of text.matchAll(HIDDEN)) {
    const mark = match[0]
    if (mark.length === 2 && !isTag(mark)) continue
    if (match.index > start) found.push({ text: text.slice(start, match.index), hidden: false })
    found.push({ text: escape(mark), hidden: true })
    start = match.index + mark.length
  }
  if (start < text.length) found.push({ text: text.slice(start), hidden: false })
  return found
}

/** The same as one plain text, for titles and labels. */
export function plain(text: string, most = 300): string {
  const cut = shortened(text, most)
  return pieces(cut).map((piece) => piece.text).join('') + (cut.length < text.length ? '…' : '')
}

/** At most so many characters, and never half a pair. */
export function shortened(text: string, most: number): string {
  if (text.length <= most) return text
  const last = text.charCodeAt(most - 1)
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most)
}
