//! Statements as text, put into as few packets as they fit.

use std::fmt::{self, Write as _};

/// A statement with many rows ends past this many bytes, so that the server need not hold more.
const STATEMENT_BYTES: usize = 1 << 20;

/// Bytes of a row beside its content.
const ROW_BYTES: usize = 256;

/// Statements on their way to the server.
#[derive(Debug)]
pub(super) struct Script {
    packets: Vec<String>,
    current: String,
    packet_bytes: usize,
    statements: usize,
}

impl Script {
    /// Nothing yet, in packets of at most that many bytes.
    pub(super) fn new(packet_bytes: usize) -> Self {
        Self { packets: Vec::new(), current: String::new(), packet_bytes, statements: 0 }
    }

    /// One statement in one packet.
    pub(super) fn of(statement: String) -> Self {
        let mut script = Self::new(usize::MAX);
        script.current = statement;
        script.statements = 1;
        script
    }

    /// How many statements there are.
    pub(super) fn statements(&self) -> usize {
        self.statements
    }

    /// Adds a statement.
    pub(super) fn statement(&mut self, text: &str) {
        self.make_room(text.len());
        self.current.push_str(text);
        self.end();
    }

    /// Adds statements of the form `head (row), (row) … tail`, as many as the rows need. `write` writes
    /// what is between the brackets; `weigh` tells how many bytes of content it has.
    pub(super) fn rows<T>(
        &mut self,
        (head, tail): (&str, &str),
        rows: &[T],
        weigh: impl Fn(&T) -> usize,
        write: impl Fn(&mut String, &T),
    ) {
        let mut begun_at = None;
        for row in rows {
            let needed = 2 * weigh(row) + ROW_BYTES + tail.len();
            let is_full = |begun: usize, script: &Self| {
                script.current.len() + needed > script.packet_bytes
                    || script.current.len() - begun + needed > STATEMENT_BYTES
            };
            if begun_at.is_some_and(|begun| is_full(begun, self)) {
                self.current.push_str(tail);
                self.end();
                begun_at = None;
            }
            if begun_at.is_none() {
                self.make_room(head.len() + needed);
                begun_at = Some(self.current.len());
                self.current.push_str(head);
                self.current.push_str(" (");
            } else {
                self.current.push_str(",(");
            }
            write(&mut self.current, row);
            self.current.push(')');
        }
        if begun_at.is_some() {
            self.current.push_str(tail);
            self.end();
        }
    }

    /// What to send.
    pub(super) fn into_packets(mut self) -> Vec<String> {
        self.next_packet();
        self.packets
    }

    fn make_room(&mut self, bytes: usize) {
        if self.current.len() + bytes > self.packet_bytes {
            self.next_packet();
        }
    }

    fn next_packet(&mut self) {
        if !self.current.is_empty() {
            self.packets.push(std::mem::take(&mut self.current));
        }
    }

    fn end(&mut self) {
        self.current.push(';');
        self.statements += 1;
    }
}

/// Appends what is formatted.
pub(super) fn put(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a text takes everything");
}

/// Appends bytes as a literal.
pub(super) fn put_bytes(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len() + 3);
    out.push_str("x'");
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out.push('\'');
}

/// Bytes as a literal.
pub(super) fn bytes(bytes: &[u8]) -> String {
    let mut out = String::new();
    put_bytes(&mut out, bytes);
    out
}

/// Numbers with commas between them.
pub(super) fn numbers(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut out = String::new();
    for number in numbers {
        let comma = if out.is_empty() { "" } else { "," };
        put(&mut out, format_args!("{comma}{number}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(rows: usize, row_bytes: usize, packet_bytes: usize) -> Vec<String> {
        let mut script = Script::new(packet_bytes);
        script.statement("BEGIN");
        let rows = vec![vec![7; row_bytes]; rows];
        script.rows(("INSERT", " END"), &rows, Vec::len, |out, row| put_bytes(out, row));
        script.into_packets()
    }

    #[test]
    fn what_fits_is_one_packet() {
        assert_eq!(packets(2, 1, 1 << 20), ["BEGIN;INSERT (x'07'),(x'07') END;"]);
        assert_eq!(packets(0, 1, 1 << 20), ["BEGIN;"]);
    }

    #[test]
    fn no_packet_is_too_large_and_no_row_is_lost() {
        for packet_bytes in [1000, 5000, 1 << 20] {
            let packets = packets(100, 100, packet_bytes);
            assert!(packets.iter().all(|packet| packet.len() <= packet_bytes));
            let rows: usize = packets.iter().map(|packet| packet.matches("x'").count()).sum();
            assert_eq!(rows, 100);
            assert!(packets.iter().all(|packet| packet.ends_with(';')), "none is torn");
        }
    }

    #[test]
    fn a_long_statement_is_cut() {
        let packets = packets(3000, 500, usize::MAX);
        assert_eq!(packets.len(), 1);
        assert!(packets[0].matches("INSERT").count() >= 3);
    }
}
