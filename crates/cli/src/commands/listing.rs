//! Lists that come in pages: objects for programs, names for scripts, a table for people.
//!
//! No more than a page is held at a time, however long the list is.

use anyhow::anyhow;
use jiff::Timestamp;
use serde_json::Value;

use super::{PAGE_MESSAGES_MAX, Session};
use crate::client::escaped;
use crate::output::{Column, Table, field, line, say};

/// How the elements of a list are shown.
pub(super) struct Listing<'a> {
    /// The name of the list in an answer.
    pub(super) name: &'static str,
    /// The field that names an element.
    pub(super) names: &'static str,
    pub(super) columns: &'static [Column],
    /// The cells of a row.
    pub(super) row: &'a dyn Fn(&Value, Timestamp) -> Vec<String>,
    /// What to say when there are none.
    pub(super) empty: &'a str,
}

impl Session {
    /// Shows every element of a list that comes in pages, at most `limit` of them.
    pub(super) fn listed(
        &self,
        path: &str,
        limit: usize,
        listing: &Listing<'_>,
    ) -> anyhow::Result<()> {
        let mut table = Table::new(listing.columns);
        let mut is_empty = true;
        self.pages(path, listing.name, limit, |elements| {
            is_empty &= elements.is_empty();
            for element in elements {
                if self.json {
                    line(&element.to_string())?;
                } else if self.quiet {
                    line(&field(element, listing.names))?;
                } else {
                    table.row((listing.row)(element, self.now()));
                }
            }
            table.print()
        })?;
        if is_empty && limit > 0 && !self.json && !self.quiet {
            say(listing.empty);
        }
        Ok(())
    }

    /// Every page of a list, with at most `limit` elements together.
    pub(super) fn pages(
        &self,
        path: &str,
        name: &str,
        limit: usize,
        mut take: impl FnMut(&[Value]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (mut left, mut cursor) = (limit, String::new());
        let join = if path.contains('?') { '&' } else { '?' };
        while left > 0 {
            let limit = left.min(PAGE_MESSAGES_MAX);
            let page = self.client.get(&format!("{path}{join}limit={limit}{cursor}"))?;
            let elements = page[name].as_array().ok_or_else(|| anyhow!("not a page"))?;
            take(elements.get(..left).unwrap_or(elements))?;
            left = left.saturating_sub(elements.len());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={}", escaped(next)),
                None => break,
            }
        }
        Ok(())
    }
}
