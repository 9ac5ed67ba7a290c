// JSON with indents. Numbers and texts stay as they were written: nothing is rounded, no field that
// occurs twice is lost.

const INDENT = '  '

/** The indented text, or null where it is not JSON. */
export function indented(text: string): string | null {
  try {
    JSON.parse(text)
  } catch {
    return null
  }
  const out: string[] = []
  let depth = 0
  const line = () => out.push('\n', INDENT.repeat(Math.min(depth, 64)))
  let index = 0
  while (index < text.length) {
    const mark = text[index] as string
    if (mark === '"') {
      const end = endOfText(text, index)
      out.push(text.slice(index, end))
      index = end
      continue
    }
    if (mark === '{' || mark === '[') {
      const close = nextMark(text, index + 1)
      if (text[close] === '}' || text[close] === ']') {
        out.push(mark, text[close] as string)
        index = close + 1
        continue
      }
      out.push(mark)
      depth += 1
      line()
    } else if (mark === '}' || mark === ']') {
      depth -= 1
      line()
      out.push(mark)
    } else if (mark === ',') {
      out.push(mark)
      line()
    } else if (mark === ':') {
      out.push(': ')
    } else if (!isSpace(mark)) {
      out.push(mark)
    }
    index += 1
  }
  return out.join('')
}

function endOfText(text: string, start: number): number {
  let index = start + 1
  while (index < text.length && text[index] !== '"') index += text[index] === '\\' ? 2 : 1
  return index + 1
}

function nextMark(text: string, from: number): number {
  let index = from
  while (index < text.length && isSpace(text[index] as string)) index += 1
  return index
}

function isSpace(mark: string): boolean {
  return mark === ' ' || mark === '\n' || mark === '\r' || mark === '\t'
}
