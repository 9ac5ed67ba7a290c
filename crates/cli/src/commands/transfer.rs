//! `punctual export` and `punctual import`: pending messages as lines of JSON.
//!
//! An export passes on what the server writes, byte for byte; an import sends it in pieces that the
//! server takes at once, so that neither needs more memory than a piece.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::job::progress_bar;
use super::pending::topic_path;
use super::{PAGE_MESSAGES_MAX, Session};
use crate::args::{ExportOptions, TransferOptions};
use crate::client::escaped;
use crate::output::{field, line, remark};

/// Lines and bytes of one piece of an import; a longer line is a piece of its own.
const PIECE_LINES: usize = 1000;
const PIECE_BYTES: usize = 4 << 20;

impl Session {
    pub(super) fn export(&self, options: &ExportOptions) -> anyhow::Result<()> {
        let TransferOptions { topic, file } = &options.transfer;
        let mut output: Box<dyn Write> = match file {
            Some(path) => {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                Box::new(BufWriter::new(file))
            }
            None => Box::new(BufWriter::new(io::stdout().lock())),
        };
        let path = format!("{}/export?limit={PAGE_MESSAGES_MAX}", topic_path(topic));
        let bar = progress_bar(None);
        let mut cursor = options.cursor.clone();
        let mut exported = 0;
        loop {
            let from = cursor.as_ref().map(|cursor| format!("&cursor={}", escaped(cursor)));
            let page = self.client.get_lines(&format!("{path}{}", from.unwrap_or_default()));
            let page = match (page, &cursor) {
                (Err(error), Some(cursor)) => {
                    output.flush()?;
                    return Err(error.context(format!("broke off; go on with --cursor {cursor}")));
                }
                (page, _) => page?,
            };
            let page = page.strip_suffix(b"\n").unwrap_or(&page);
            let start = page.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let (lines, last) = page.split_at(start);
            let last: Value = serde_json::from_slice(last).unwrap_or_default();
            if last["exported"].is_null() {
                bail!("the export broke off; what was written is not all of it");
            }
            output.write_all(lines)?;
            exported += last["exported"].as_u64().unwrap_or_default();
            bar.set_position(exported);
            match last["next"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        // As over HTTP: without this line it is not whole.
        writeln!(output, "{}", json!({"next": null, "exported": exported}))?;
        output.flush()?;
        bar.finish_and_clear();
        Ok(())
    }

    pub(super) fn import(&self, options: &TransferOptions) -> anyhow::Result<()> {
        let mut input: Box<dyn BufRead> = match &options.file {
            Some(path) => Box::new(BufReader::new(open(path)?)),
            None => Box::new(io::stdin().lock()),
        };
        let path = format!("{}/import", topic_path(&options.topic));
        let bar = progress_bar(None);
        let mut sum = Sum::default();
        loop {
            let (piece, lines) = piece(&mut input)?;
            if lines == 0 {
                break;
            }
            let answer = self.client.post_lines(&path, piece)?;
            sum.add(&answer, lines);
            bar.set_position(sum.lines);
        }
        bar.finish_and_clear();
        let Sum { imported, duplicates, failed, .. } = sum;
        match self.json {
            true => {
                let answer =
                    json!({"imported": imported, "duplicates": duplicates, "failed_count": failed});
                line(&answer.to_string())?;
            }
            false => line(&format!("{imported} imported, {duplicates} were there already"))?,
        }
        if failed > 0 { bail!("{failed} lines were not imported") } else { Ok(()) }
    }
}

#[derive(Default)]
struct Sum {
    lines: u64,
    imported: u64,
    duplicates: u64,
    failed: u64,
}

impl Sum {
    fn add(&mut self, answer: &Value, lines: u64) {
        let number = |name: &str| answer[name].as_u64().unwrap_or_default();
        for failed in answer["failed"].as_array().into_iter().flatten() {
            let place = self.lines + failed["line"].as_u64().unwrap_or_default();
            let [detail, code] = ["detail", "code"].map(|name| field(failed, name));
            remark(&format!("line {place}: {detail} ({code})"));
        }
        self.lines += lines;
        self.imported += number("imported");
        self.duplicates += number("duplicates");
        self.failed += number("failed_count");
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the caller, not one of the store")]
fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| path.display().to_string())
}

/// The next lines, and how many.
fn piece(input: &mut dyn BufRead) -> io::Result<(Vec<u8>, u64)> {
    let (mut piece, mut lines) = (Vec::new(), 0);
    while lines < PIECE_LINES && piece.len() < PIECE_BYTES {
        if input.read_until(b'\n', &mut piece)? == 0 {
            break;
        }
        lines += 1;
    }
    Ok((piece, lines as u64))
}
