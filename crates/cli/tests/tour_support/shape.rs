//! What is the same in two outputs of one command.

use std::collections::HashMap;

use regex::{Captures, Regex};

/// Names what differs from run to run. Ids keep a number each, so that the same stays the same.
#[derive(Debug, Default)]
pub struct Shapes {
    ids: HashMap<String, usize>,
}

impl Shapes {
    pub fn of(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in text.lines() {
            lines.push(self.line(line));
        }
        lines
    }

    fn line(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for (pattern, name) in [
            (r"\b[\w-]+\.[A-Za-z0-9_-]{43}\b", "TOKEN"),
            (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "TIME"),
            (r"\bin (\d+(d|h|ms|m|s) ?)+|\b(\d+(d|h|ms|m|s) ?)+ ago\b|\bnow\b", "WHEN "),
            (r"\b(\d+(\.\d+)?(d|h|ms|m|s))+ left\b", "SPAN left"),
            (r"\bpartition  \d+", "partition N"),
            (r"http://127\.0\.0\.1:\d+", "SERVER"),
        ] {
            let pattern = Regex::new(pattern).expect("a pattern");
            line = pattern.replace_all(&line, name).into_owned();
        }
        // Our ids have 32 letters, receipts 36.
        let id = Regex::new(r"\b[0-9a-z]{32}([0-9a-z]{4})?\b").expect("a pattern");
        let line = id.replace_all(&line, |found: &Captures<'_>| {
            let next = self.ids.len() + 1;
            let number = self.ids.entry(found[0].to_owned()).or_insert(next);
            format!("ID{number}")
        });
        // Widths of columns follow what is in them.
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn the_same_id_has_the_same_shape() {
    let mut shapes = Shapes::default();
    let (a, b) = ("06gy2fbyvr0000000000000000000hs5", "06gy2p7p7r0000000000200000000zmr");
    let text = format!("{a}  due 2026-11-15T12:30:00.125Z, in 29m 59s\n{b}  5s ago\n{a}  now\n");
    assert_eq!(shapes.of(&text), ["ID1 due TIME, WHEN", "ID2 WHEN", "ID1 WHEN"]);
    assert_eq!(shapes.of("x  paused, 1h59m59.98s left"), ["x paused, SPAN left"]);
}
