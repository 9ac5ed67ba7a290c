//! Cuts a body into lines while it arrives.
//!
//! No more than one line and one piece of the body are in memory, whatever arrives, and what is
//! counts as held.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use punctual_api::Problem;
use punctual_model::limits::BODY_BYTES_CEILING;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::http::body::{Arrived, Arriving, hold, merge};
use crate::http::shared::Shared;

/// Longest line: the largest body in base 64, with room for the rest.
pub(crate) const LINE_BYTES_MAX: usize = BODY_BYTES_CEILING + BODY_BYTES_CEILING / 2;
/// Within the time that a whole body has elsewhere, this much must arrive of a transfer.
const PROGRESS_BYTES: usize = 64 << 10;

/// Most bytes that are passed over once a stream was ended.
const PASSED_OVER_BYTES_MAX: usize = 64 << 20;
/// Who has paused so long is taken to have read the answer.
const PASSED_OVER_PAUSE: Duration = Duration::from_secs(1);

/// A line as it came.
pub(crate) enum Line {
    Text(BytesMut),
    /// Longer than [`LINE_BYTES_MAX`].
    TooLong,
}

/// What has come of the lines.
pub(crate) enum Next {
    Line(Line),
    /// The next one is not there yet.
    NotYet,
    End,
}

/// How fast lines must come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as the other side can.
    Transfer,
    /// When there is something to say; only a line that has begun must get on.
    Talk,
}

/// See the head of this file.
pub(crate) struct Lines {
    shared: Arc<Shared>,
    body: Arriving,
    pace: Pace,
    /// What has arrived of lines that are not taken yet.
    buffer: BytesMut,
    /// How much of that has no line end in it.
    searched: usize,
    /// Whether the beginning of the line in the buffer was thrown away.
    skipping: bool,
    ended: bool,
    /// How many lines were taken.
    pub(crate) number: u64,
    /// When the next [`PROGRESS_BYTES`], or the end of the line, must be there.
    deadline: Instant,
    progress: usize,
    held: Option<OwnedSemaphorePermit>,
    counted: usize,
}

impl Lines {
    pub(crate) fn new(shared: &Arc<Shared>, body: Arriving, pace: Pace) -> Self {
        Self {
            shared: Arc::clone(shared),
            body,
            pace,
            buffer: BytesMut::new(),
            searched: 0,
            skipping: false,
            ended: false,
            number: 0,
            deadline: Instant::now() + shared.live().config.http.body_timeout,
            progress: 0,
            held: None,
            counted: 0,
        }
    }

    /// The next line that is not empty; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Line>, Problem> {
        match self.read(true).await? {
            Next::Line(line) => Ok(Some(line)),
            Next::NotYet | Next::End => Ok(None),
        }
    }

    /// The next line if it is there already.
    pub(crate) async fn next_now(&mut self) -> Result<Next, Problem> {
        self.read(false).await
    }

    async fn read(&mut self, may_wait: bool) -> Result<Next, Problem> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(place) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + place + 1);
                self.searched = 0;
                line.truncate(line.len() - 1);
                self.deadline = Instant::now() + self.patience().0;
                if let Some(line) = self.line(line) {
                    return Ok(Next::Line(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                self.buffer = BytesMut::new();
                self.searched = 0;
                // Who talks is told at once; of a transfer the rest of the line is passed over.
                if self.pace == Pace::Talk {
                    self.ended = true;
                    return Ok(Next::Line(Line::TooLong));
                }
                self.skipping = true;
            }
            if self.ended {
                let line = std::mem::take(&mut self.buffer);
                self.searched = 0;
                if line.is_empty() && !self.skipping {
                    return Ok(Next::End);
                }
                if let Some(line) = self.line(line) {
                    return Ok(Next::Line(line));
                }
                continue;
            }
            if !self.more(may_wait).await? {
                return Ok(Next::NotYet);
            }
        }
    }

    /// Reads on for a while without looking, so that a peer that is still sending gets to hear why
    /// nobody listens any more before the connection is closed.
    pub(crate) async fn pass_over(&mut self) {
        let last = Instant::now() + self.patience().0;
        let mut bytes = 0;
        while bytes < PASSED_OVER_BYTES_MAX {
            let deadline = last.min(Instant::now() + PASSED_OVER_PAUSE);
            match self.body.piece(&self.shared, deadline).await {
                Ok(Some(piece)) => bytes += piece.len(),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn line(&mut self, line: BytesMut) -> Option<Line> {
        self.number += 1;
        if std::mem::take(&mut self.skipping) || line.len() > LINE_BYTES_MAX {
            return Some(Line::TooLong);
        }
        (!line.trim_ascii().is_empty()).then_some(Line::Text(line))
    }

    /// How long a line or a stretch of a transfer may take, a pause within it, and one before it.
    fn patience(&self) -> (Duration, Duration, Duration) {
        let live = self.shared.live();
        let http = &live.config.http;
        (http.body_timeout, http.body_idle_timeout, http.idle_timeout)
    }

    /// Takes in what arrives next, or has arrived; false when that is nothing yet.
    async fn more(&mut self, may_wait: bool) -> Result<bool, Problem> {
        let (whole, pause, idle) = self.patience();
        let now = Instant::now();
        let between = self.buffer.is_empty() && !self.skipping && self.pace == Pace::Talk;
        let deadline = if between { now + idle } else { self.deadline.min(now + pause) };
        let deadline = may_wait.then_some(deadline);
        let data = match self.body.next(&self.shared, deadline).await? {
            Arrived::Piece(data) => data,
            Arrived::Nothing => return Ok(false),
            Arrived::End => {
                self.ended = true;
                return Ok(true);
            }
        };
        if between {
            self.deadline = Instant::now() + whole;
        }
        self.progress += data.len();
        if self.progress >= PROGRESS_BYTES {
            self.progress = 0;
            self.deadline = Instant::now() + whole;
        }
        let length = self.buffer.len() + data.len();
        if length > self.counted {
            let more = hold(&self.shared, length - self.counted)?;
            merge(&mut self.held, more);
            self.counted = length;
        }
        self.buffer.extend_from_slice(&data);
        Ok(true)
    }
}
