//! Export: what is pending in a topic, one message a line, written while it leaves.
//!
//! Page by page, so that nobody else waits for it and no more than a page is in memory. A message
//! that changes meanwhile may be missed or come twice; its id tells.

use std::sync::Arc;

use http::header::HeaderValue;
use punctual_api::answer::Content;
use punctual_api::request::Parameters;
use punctual_api::transfer::{ExportEnd, ExportLine};
use punctual_api::{Code, Problem};
use punctual_broker::series::{Series, describe};
use punctual_broker::{Filter, Report};
use punctual_model::ports::{PendingEntry, StoreError, Topic};
use punctual_model::{Key, Link, Partition, Span, State, partitioner};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::warn;

use crate::http::call::Call;
use crate::http::messages::known;
use crate::http::page::{cursor_of, read_cursor};
use crate::http::reply::{Cut, Piece, Reply, written};
use crate::http::shared::Shared;
use crate::shown::{content, repeat_view};

/// The type of one JSON object a line.
pub(crate) const NDJSON: &str = "application/x-ndjson";
/// Messages read at once.
const PAGE_MESSAGES: usize = 256;
/// About how much is sent at once.
const PIECE_BYTES: usize = 128 << 10;

/// What is exported, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Scheduled,
    Paused,
    Series,
}

impl Part {
    const fn letter(self) -> char {
        match self {
            Self::Scheduled => 's',
            Self::Paused => 'p',
            Self::Series => 'r',
        }
    }

    const fn next(self) -> Option<Self> {
        match self {
            Self::Scheduled => Some(Self::Paused),
            Self::Paused => Some(Self::Series),
            Self::Series => None,
        }
    }
}

/// How far an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    part: Part,
    after: Option<Key>,
}

impl Place {
    const START: Self = Self { part: Part::Scheduled, after: None };

    fn read(text: &str) -> Option<Self> {
        let parts = [Part::Scheduled, Part::Paused, Part::Series];
        let part = parts.into_iter().find(|part| text.starts_with(part.letter()))?;
        let rest = text.get(1..)?;
        let after = if rest.is_empty() { None } else { Some(read_cursor(rest)?) };
        Some(Self { part, after })
    }

    fn cursor(self) -> String {
        format!("{}{}", self.part.letter(), self.after.map(cursor_of).unwrap_or_default())
    }
}

/// `GET /v1/topics/{topic}/export`
pub(crate) async fn export(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let mut parameters = Parameters::read(call.query())?;
    let limit = parameters.take_number("limit", 1, u64::MAX)?.unwrap_or(u64::MAX);
    let cursor = parameters.take("cursor")?;
    let place = cursor.map_or(Some(Place::START), |text| Place::read(&text));
    let place = place.ok_or(Code::InvalidCursor)?;
    parameters.end()?;
    let topic = known(&call.shared, &name)?;
    let turn = turn(&call.shared)?;
    // One piece waits while the next is written.
    let (pieces, source) = mpsc::channel(1);
    let shared = Arc::clone(&call.shared);
    call.shared.tasks.spawn(async move {
        let mut writer = Writer { shared, topic, place, left: limit, text: Vec::new(), pieces };
        writer.run().await;
        drop(turn);
    });
    Ok(written(HeaderValue::from_static(NDJSON), source))
}

/// Exports and imports take turns, so that many of them do not take all of the memory.
pub(crate) fn turn(shared: &Shared) -> Result<OwnedSemaphorePermit, Problem> {
    let turn = Arc::clone(&shared.transfers).try_acquire_owned();
    turn.map_err(|_none_left| {
        Problem::new(Code::TooBusy, "as many exports and imports are under way as may be")
    })
}

/// Why an export does not go on.
enum Stop {
    /// Nobody reads it any more.
    Unread,
    /// The server is ending.
    Ending,
    Store(StoreError),
}

struct Writer {
    shared: Arc<Shared>,
    topic: Arc<Topic>,
    place: Place,
    /// How many messages may still be written.
    left: u64,
    text: Vec<u8>,
    pieces: mpsc::Sender<Result<Piece, Cut>>,
}

impl Writer {
    async fn run(&mut self) {
        let whole = match self.write_all().await {
            Ok(()) | Err(Stop::Unread) => true,
            Err(Stop::Ending) => false,
            Err(Stop::Store(error)) => {
                warn!(topic = %self.topic.name, %error, "an export was cut off");
                false
            }
        };
        if !whole {
            // Nobody reads it any more: then it need not be told.
            let _unread = self.pieces.send(Err(Cut)).await.is_err();
        }
    }

    async fn write_all(&mut self) -> Result<(), Stop> {
        let mut exported = 0u64;
        let next = loop {
            if self.shared.tasks.is_stopped() {
                return Err(Stop::Ending);
            }
            if self.left == 0 {
                break Some(self.place.cursor());
            }
            let (entries, next) = self.page().await.map_err(Stop::Store)?;
            for entry in entries {
                let key = entry.key;
                if self.write(entry).await? {
                    exported += 1;
                    self.left -= 1;
                }
                self.place.after = Some(key);
                if self.left == 0 {
                    break;
                }
            }
            if self.left == 0 {
                continue;
            }
            match (next, self.place.part.next()) {
                (Some(key), _) => self.place.after = Some(key),
                (None, Some(part)) => self.place = Place { part, after: None },
                (None, None) => break None,
            }
        };
        let end = ExportEnd { next, exported };
        serde_json::to_writer(&mut self.text, &end).expect("our own shapes have no faults");
        self.text.push(b'\n');
        self.send().await
    }

    async fn page(&self) -> Result<(Vec<PendingEntry>, Option<Key>), StoreError> {
        let (broker, after) = (&self.shared.broker, self.place.after);
        let state = match self.place.part {
            Part::Scheduled => State::Scheduled,
            Part::Paused => State::Paused,
            Part::Series => {
                let page = broker.series().list(self.topic.id, after, PAGE_MESSAGES).await?;
                return Ok((page.entries, page.next));
            }
        };
        let filter = Filter { state: Some(state), ..Filter::default() };
        let page = broker.scheduled(&self.topic, &filter, after, PAGE_MESSAGES).await?;
        Ok((page.entries, page.next))
    }

    /// Writes a message; false for one that its series brings along.
    async fn write(&mut self, entry: PendingEntry) -> Result<bool, Stop> {
        if self.comes_along(&entry).await.map_err(Stop::Store)? {
            return Ok(false);
        }
        if let Some(series) = describe(&entry) {
            let line = series_line(&self.topic, &entry, &series);
            write_line(&mut self.text, &line);
        } else if self.place.part == Part::Series {
            return Ok(false);
        } else {
            let report = Report::of_pending(Arc::clone(&self.topic), entry);
            write_line(&mut self.text, &message_line(&report));
        }
        if self.text.len() >= PIECE_BYTES {
            self.send().await?;
        }
        Ok(true)
    }

    /// Whether it is the occurrence that its series is to bring next. One that was moved, or is held
    /// back while its series goes on, is a message like any other.
    async fn comes_along(&self, entry: &PendingEntry) -> Result<bool, StoreError> {
        let series = entry.extra.as_ref().and_then(|extra| extra.series).and_then(Link::id);
        let Some(series) = series else { return Ok(false) };
        let found = self.shared.broker.series().get(series).await?;
        let next = found.as_ref().and_then(describe).and_then(|series| series.occurrence);
        Ok(next == Some(entry.id))
    }

    async fn send(&mut self) -> Result<(), Stop> {
        let piece = Piece::from(std::mem::take(&mut self.text));
        self.pieces.send(Ok(piece)).await.map_err(|_unread| Stop::Unread)
    }
}

fn write_line(text: &mut Vec<u8>, line: &ExportLine<'_>) {
    serde_json::to_writer(&mut *text, line).expect("our own shapes have no faults");
    text.push(b'\n');
}

fn message_line(report: &Report) -> ExportLine<'_> {
    // Whoever imports it is its sender there.
    let content = report.message.as_ref().map(content).unwrap_or_default();
    let content = Content { app: None, ..content };
    let partition = report.id.partition;
    let follows = follows(&report.topic, content.key, partition);
    ExportLine {
        id: report.id.to_string(),
        own_id: report.own_id.as_deref(),
        deliver_at: report.due.map(|due| due.to_string()).unwrap_or_default(),
        // Nothing left means that the pause of the topic holds it; that stays here.
        remaining: report
            .remaining
            .filter(|remaining| *remaining > Span::ZERO)
            .map(|remaining| remaining.to_string()),
        partition: (!follows).then(|| partition.get()),
        version: report.version.unwrap_or(1),
        repeat: None,
        content,
    }
}

/// Whether the partition follows from the key; then it is to follow from the key elsewhere too.
fn follows(topic: &Topic, key: Option<&[u8]>, partition: Partition) -> bool {
    key.is_some_and(|key| partitioner::by_key(key, topic.key_partitions) == partition)
}

/// A series goes on elsewhere with the occurrence that is to come.
fn series_line<'a>(topic: &Topic, entry: &'a PendingEntry, series: &'a Series) -> ExportLine<'a> {
    let own_id = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
    let mut repeat = repeat_view(&series.repeat);
    let gone = series.number.saturating_sub(1);
    repeat.count = repeat.count.map(|count| count.saturating_sub(gone).max(1));
    ExportLine {
        id: entry.id.to_string(),
        own_id: own_id.map(|own_id| &*own_id.text),
        deliver_at: series.next.to_string(),
        remaining: None,
        partition: series
            .partition
            .filter(|partition| !follows(topic, series.message.key.as_deref(), *partition))
            .map(Partition::get),
        version: entry.version(),
        repeat: Some(repeat),
        content: Content { app: None, ..content(&series.message) },
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::{Sequence, Timestamp};

    use super::*;

    #[test]
    fn a_cursor_is_read_again() {
        let key =
            Key { due: Timestamp::from_millis(5).unwrap(), sequence: Sequence::new(77).unwrap() };
        for part in [Part::Scheduled, Part::Paused, Part::Series] {
            for after in [None, Some(key)] {
                let place = Place { part, after };
                assert_eq!(Place::read(&place.cursor()), Some(place));
            }
        }
        for text in ["", "x", "s-", "s5", "sx-y", "5-5", "é"] {
            assert_eq!(Place::read(text), None, "{text}");
        }
    }
}
