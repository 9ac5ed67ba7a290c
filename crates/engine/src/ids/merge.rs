//! Making one file of many, and which ones to take.
//!
//! Files are merged with their neighbours in age only, so that of two entries with one name the one
//! in the newer file is always the newer one. Memory is a buffer for each source and what the new
//! file holds in memory.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::Disk;
use crate::ids::Value;
use crate::ids::file::{self, IdFile, PAGE_BYTES, PAGE_ENTRIES, not_whole};
use crate::ids::name::Name;
use crate::ids::writer::IdWriter;

/// Neighbours of about the same size that are merged as soon as there are so many.
const TIER_FILES: usize = 4;
/// Pages read at once from each source.
const READ_PAGES: usize = 256;

/// Writes one file of `files`, newest first, without what `keep` refuses; `None` when nothing is
/// left. Of entries with one name `keep` sees the newest alone. What it refuses may have an older
/// value in a file that is not merged now, which shows again: `keep` has to mean that neither is of
/// any interest.
///
/// # Errors
/// As the disk says, then a part of the file may be there, for the caller to remove; `InvalidData`
/// when a source is damaged.
pub fn merge(
    disk: &dyn Disk,
    number: u64,
    files: &[Arc<IdFile>],
    mut keep: impl FnMut(Name, &Value) -> bool,
) -> io::Result<Option<IdFile>> {
    let entries_max = files.iter().map(|file| file.entries()).sum();
    let mut sources = Vec::with_capacity(files.len());
    for file in files {
        sources.push(Source::start(Arc::clone(file))?);
    }
    let mut writer = None;
    while let Some((name, value)) = take_next(&mut sources)? {
        if !keep(name, &value) {
            continue;
        }
        if writer.is_none() {
            writer = Some(IdWriter::create(disk, number, entries_max)?);
        }
        if let Some(writer) = &mut writer {
            writer.push(name, &value)?;
        }
    }
    writer.map(|writer| writer.finish(disk)).transpose()
}

/// Which of the files, given by entries, newest first, to merge: neighbours of about the same size,
/// and when that leaves more than `files_max` the cheapest neighbours that bring them down to it.
/// Files of which nothing is given stay as they are.
pub(crate) fn plan(entries: &[Option<u64>], files_max: usize) -> Option<Range<usize>> {
    let alike = (0..entries.len()).map(|start| start..start + count_alike(entries, start));
    let mut tiers = alike.filter(|range| range.len() >= TIER_FILES);
    tiers.next().or_else(|| cheapest(entries, files_max))
}

/// How many files from `start` on are of about the same size: none is more than twice as large as
/// those before it are on average.
fn count_alike(entries: &[Option<u64>], start: usize) -> usize {
    let mut sum = 0u64;
    let mut count = 0u64;
    let alike = entries.iter().skip(start).take_while(|entries| {
        let Some(entries) = **entries else { return false };
        let fits = entries.saturating_mul(count) <= sum.saturating_mul(2);
        sum = sum.saturating_add(entries);
        count += 1;
        fits
    });
    alike.count()
}

fn cheapest(entries: &[Option<u64>], files_max: usize) -> Option<Range<usize>> {
    let width = entries.len().checked_sub(files_max).filter(|over| *over > 0)? + 1;
    let windows = entries.windows(width).enumerate();
    let sums = windows.filter_map(|(start, window)| {
        let sum = window.iter().try_fold(0u64, |sum, one| Some(sum.saturating_add((*one)?)))?;
        Some((sum, start))
    });
    sums.min().map(|(_, start)| start..start + width)
}

/// The entry with the smallest name, from the newest source that has it; the others pass over it.
fn take_next(sources: &mut [Source]) -> io::Result<Option<(Name, Value)>> {
    let mut smallest: Option<(Name, Value)> = None;
    for source in sources.iter() {
        if let Some(head) = source.head
            && smallest.is_none_or(|(name, _)| head.0 < name)
        {
            smallest = Some(head);
        }
    }
    let Some((name, value)) = smallest else { return Ok(None) };
    for source in sources {
        if source.head.is_some_and(|(head, _)| head == name) {
            source.advance()?;
        }
    }
    Ok(Some((name, value)))
}

/// A file read from front to back.
#[derive(Debug)]
struct Source {
    file: Arc<IdFile>,
    head: Option<(Name, Value)>,
    /// Checked pages; the first of them is `first_page`.
    pages: Vec<u8>,
    first_page: usize,
    /// The entry behind the head, counted from the front of the file.
    next: u64,
}

impl Source {
    fn start(file: Arc<IdFile>) -> io::Result<Self> {
        let mut source = Self { file, head: None, pages: Vec::new(), first_page: 0, next: 0 };
        source.advance()?;
        Ok(source)
    }

    fn advance(&mut self) -> io::Result<()> {
        if self.next == self.file.entries() {
            self.head = None;
            return Ok(());
        }
        let next = usize::try_from(self.next).map_err(io::Error::other)?;
        let (page, place) = (next / PAGE_ENTRIES, next % PAGE_ENTRIES);
        if page - self.first_page >= self.pages.len() / PAGE_BYTES {
            self.pages = self.file.read_pages(page, READ_PAGES)?;
            self.first_page = page;
        }
        let bytes = self.pages.as_chunks::<PAGE_BYTES>().0.get(page - self.first_page);
        let entry = bytes.and_then(|bytes| bytes.as_chunks().0.get(place));
        self.head = Some(file::decode(entry.ok_or_else(not_whole)?)?);
        self.next += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(entries: &[u64]) -> Vec<Option<u64>> {
        entries.iter().copied().map(Some).collect()
    }

    #[test]
    fn four_neighbours_of_a_size_are_merged() {
        assert_eq!(plan(&sizes(&[]), 12), None);
        assert_eq!(plan(&sizes(&[10, 10, 10]), 12), None);
        assert_eq!(plan(&sizes(&[10, 10, 10, 10]), 12), Some(0..4));
        assert_eq!(plan(&sizes(&[10, 12, 9, 15, 40]), 12), Some(0..4));
        assert_eq!(plan(&sizes(&[1, 40, 41, 42, 43]), 12), Some(1..5));
        assert_eq!(plan(&sizes(&[1, 10, 100, 1000, 10_000]), 12), None);
    }

    #[test]
    fn too_many_files_are_merged_where_it_is_cheapest() {
        assert_eq!(plan(&sizes(&[1, 10, 100, 1000]), 3), Some(0..2));
        assert_eq!(plan(&sizes(&[1, 10, 100, 1000]), 2), Some(0..3));
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let files = [Some(10), Some(10), None, Some(10), Some(10), Some(10)];
        assert_eq!(plan(&files, 12), None);
        assert_eq!(plan(&files, 5), Some(0..2));
        assert_eq!(plan(&[None, None], 1), None);
    }

    proptest! {
        #[test]
        fn there_are_never_many_files(flushes in prop::collection::vec(1u64..1000, 1..600)) {
            let mut files: Vec<Option<u64>> = Vec::new();
            let (mut written, mut total) = (0, 0);
            for entries in flushes {
                files.insert(0, Some(entries));
                total += entries;
                while let Some(range) = plan(&files, 12) {
                    prop_assert!(range.len() >= 2);
                    let merged: u64 = files.drain(range.clone()).flatten().sum();
                    written += merged;
                    files.insert(range.start, Some(merged));
                }
                prop_assert!(files.len() <= 12);
                prop_assert_eq!(files.iter().flatten().sum::<u64>(), total);
            }
            prop_assert!(written <= total * 8, "{written} written for {total}");
        }
    }
}
