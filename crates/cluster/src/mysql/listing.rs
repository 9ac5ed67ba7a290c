//! The pending messages of a topic, of all slots, in key order.

use std::collections::HashMap;

use punctual_model::ports::{PendingEntry, PendingPage, PendingQuery};
use punctual_model::{Entry, Key};

use super::MysqlStore;
use super::line::{Call, Line, Trouble};
use super::row::{ENDED, at_key, column, decode, key};
use super::script::Script;
use super::walk::{Found, Walk};
use crate::store::Failure;

/// Messages looked at for one page when only those of some keys are wanted.
const LOOKED_AT: usize = 2000;

/// A page ends past this many bytes.
const PAGE_BYTES: usize = 16 << 20;

/// Contents read in one statement: at first, when it is not known how large they are, and at most, since
/// the server treats longer lists differently.
const CONTENTS: std::ops::RangeInclusive<usize> = 8..=200;

impl MysqlStore {
    pub(super) async fn list_pending(&self, query: &PendingQuery) -> Result<PendingPage, Failure> {
        if query.limit == 0 {
            return Ok(PendingPage { entries: Vec::new(), next: query.after });
        }
        self.run(List { store: self, query }).await
    }
}

struct List<'a> {
    store: &'a MysqlStore,
    query: &'a PendingQuery,
}

impl Call for List<'_> {
    type Answer = PendingPage;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<PendingPage, Trouble> {
        let query = self.query;
        let is_picky = query.key.is_some() || query.key_prefix.is_some();
        let wanted = if is_picky { query.limit.max(LOOKED_AT) } else { query.limit };
        let Found { keys, stopped_at } =
            Walk::new(query, wanted, self.store.packet_bytes).go(line).await?;
        let mut page = PendingPage { entries: Vec::new(), next: stopped_at };
        let all = keys.len();
        let (mut rest, mut bytes, mut together) = (&keys[..], 0, *CONTENTS.start());
        while !rest.is_empty() {
            let (keys, others) = rest.split_at(together.min(rest.len()));
            let mut contents = read_contents(line, keys).await?;
            for (place, at) in keys.iter().enumerate() {
                // What has ended since it was seen is not listed.
                let Some(content) = contents.remove(at) else { continue };
                bytes += content.len();
                let (id, entry) = decode(*at, content)?;
                if is_wanted(query, &entry) {
                    let Entry { basis, message, extra, .. } = entry;
                    page.entries.push(PendingEntry { id, key: *at, basis, message, extra });
                }
                let is_last = place + 1 == keys.len() && others.is_empty();
                if !is_last && (page.entries.len() == query.limit || bytes > PAGE_BYTES) {
                    page.next = Some(*at);
                    return Ok(page);
                }
            }
            rest = others;
            // As many as fit if they are about as large as the others were.
            let mean = bytes / (all - rest.len()).max(1);
            together = (PAGE_BYTES / mean.max(1)).clamp(*CONTENTS.start(), *CONTENTS.end());
        }
        Ok(page)
    }
}

async fn read_contents(
    line: &mut Line<'_>,
    keys: &[Key],
) -> Result<HashMap<Key, Vec<u8>>, Trouble> {
    let places: Vec<_> = keys.iter().map(|key| format!("({})", at_key("", *key))).collect();
    let places = places.join(" OR ");
    let statement = format!(
        "SELECT due, sequence, content FROM punctual_entries FORCE INDEX (PRIMARY) \
         WHERE state < {ENDED} AND ({places})"
    );
    let sets = line.ask(Script::of(statement)).await?;
    let read = |row| Ok((key(column(row, 0)?, column(row, 1)?)?, column(row, 2)?));
    sets.iter().flatten().map(read).collect()
}

fn is_wanted(query: &PendingQuery, entry: &Entry) -> bool {
    let has = |is: &dyn Fn(&[u8]) -> bool| entry.message.key.as_deref().is_some_and(is);
    let same = query.key.as_deref().is_none_or(|key| has(&|own| own == key));
    same && query.key_prefix.as_deref().is_none_or(|prefix| has(&|own| own.starts_with(prefix)))
}
