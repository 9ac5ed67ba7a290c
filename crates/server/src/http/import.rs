//! Import: pending messages from elsewhere, one a line, taken in while they arrive.
//!
//! A message without a name of its own is given one made of the id it had, so that an import that is
//! repeated changes nothing. Lines that cannot be taken are told and left out; everything else that
//! goes wrong ends the import, and what was taken in stays.

use std::sync::Arc;

use bytes::BytesMut;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use punctual_api::request::Parameters;
use punctual_api::transfer::{FailedLine, ImportLine, ImportMessage, ImportView};
use punctual_api::{Code, Problem};
use punctual_broker::{Change, Request, ScheduleError, Scheduled, When};
use punctual_model::limits::{BODY_BYTES_CEILING, DELAY_CEILING, PARTITIONS_DEFAULT};
use punctual_model::ports::OnConflict;
use punctual_model::{MessageId, Span, State, TopicName};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::http::asked::to_request;
use crate::http::audit::{self, Asker};
use crate::http::body::hold;
use crate::http::export::{NDJSON, turn};
use crate::http::messages::{READ_LIMITS, require_type};
use crate::http::problem::{of_change, of_schedule, of_store};
use crate::http::reply::{Reply, json};
use crate::http::call::Call;
use crate::http::shared::Shared;
use crate::http::time;

/// Longest line: the largest body in base 64, with room for the rest.
const LINE_BYTES_MAX: usize = BODY_BYTES_CEILING + BODY_BYTES_CEILING / 2;
/// Messages stored together.
const BATCH_MESSAGES: usize = 256;
/// Bytes of messages stored together; the last one may pass it.
const BATCH_BYTES: usize = 2 << 20;
/// Within the time that a whole body has elsewhere, this much must arrive at least.
const PROGRESS_BYTES: usize = 64 << 10;
/// Failed lines that are told.
const FAILED_MAX: usize = 1000;
/// Before the id of a message that had no name of its own.
const OWN_ID_PREFIX: &str = "import:";
/// A message that is to be paused waits at least this long meanwhile.
const UNTIL_PAUSED: Span = Span::from_secs(3600);

/// `POST /v1/topics/{topic}/import`
pub(crate) async fn import(call: Call) -> Result<Reply, Problem> {
    let topic = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    require_type(&call, NDJSON)?;
    let _turn = turn(&call.shared)?;
    let asker = call.asker();
    let Call { shared, body, .. } = call;
    let view = taken_in(&shared, asker, &topic, body).await?;
    Ok(json(StatusCode::OK, &view))
}

async fn taken_in(
    shared: &Arc<Shared>,
    asker: Asker,
    topic: &TopicName,
    body: Incoming,
) -> Result<ImportView, Problem> {
    let work = async {
        let mut lines = Lines::new(shared, body);
        let mut import = Import::new(shared, topic);
        while let Some(line) = lines.next().await? {
            import.take(lines.number, line).await?;
        }
        import.flush().await?;
        // Those that only the broker refused were told later.
        import.view.failed.sort_by_key(|failed| failed.line);
        Ok(import.view)
    };
    audit::taken_down(shared, asker, ("import", Some(topic)), Vec::new(), work).await
}

/// A line as it came.
enum Line {
    Text(BytesMut),
    TooLong,
}

/// Cuts a body into lines while it arrives.
struct Lines<'a> {
    shared: &'a Arc<Shared>,
    body: Incoming,
    /// What has arrived of lines that are not taken yet.
    buffer: BytesMut,
    /// How much of that has no line end in it.
    searched: usize,
    /// Whether the beginning of the line in the buffer was thrown away.
    skipping: bool,
    ended: bool,
    number: u64,
    /// When the next [`PROGRESS_BYTES`] must be there.
    deadline: Instant,
    progress: usize,
    held: Option<OwnedSemaphorePermit>,
    counted: usize,
}

impl<'a> Lines<'a> {
    fn new(shared: &'a Arc<Shared>, body: Incoming) -> Self {
        Self {
            shared,
            body,
            buffer: BytesMut::new(),
            searched: 0,
            skipping: false,
            ended: false,
            number: 0,
            deadline: Instant::now() + shared.http.body_timeout,
            progress: 0,
            held: None,
            counted: 0,
        }
    }

    /// The next line that is not empty; `None` at the end.
    async fn next(&mut self) -> Result<Option<Line>, Problem> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(place) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + place + 1);
                self.searched = 0;
                line.truncate(line.len() - 1);
                if let Some(line) = self.line(line) {
                    return Ok(Some(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                self.skipping = true;
                self.buffer.clear();
                self.searched = 0;
            }
            if self.ended {
                let line = std::mem::take(&mut self.buffer);
                self.searched = 0;
                if line.is_empty() && !self.skipping {
                    return Ok(None);
                }
                if let Some(line) = self.line(line) {
                    return Ok(Some(line));
                }
                continue;
            }
            self.more().await?;
        }
    }

    fn line(&mut self, line: BytesMut) -> Option<Line> {
        self.number += 1;
        if std::mem::take(&mut self.skipping) || line.len() > LINE_BYTES_MAX {
            return Some(Line::TooLong);
        }
        (!line.trim_ascii().is_empty()).then_some(Line::Text(line))
    }

    /// Takes in what arrives next.
    async fn more(&mut self) -> Result<(), Problem> {
        let idle = Instant::now() + self.shared.http.body_idle_timeout;
        let frame = match timeout_at(self.deadline.min(idle), self.body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => {
                self.ended = true;
                return Ok(());
            }
            Ok(Some(Err(_broken))) => {
                return Err(Problem::new(Code::InvalidRequest, "the body broke off"));
            }
            Err(_elapsed) => return Err(Code::RequestTimeout.into()),
        };
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { return Ok(()) };
        self.progress += data.len();
        if self.progress >= PROGRESS_BYTES {
            self.progress = 0;
            self.deadline = Instant::now() + self.shared.http.body_timeout;
        }
        self.buffer.extend_from_slice(&data);
        if self.buffer.len() > self.counted {
            let more = hold(self.shared, self.buffer.len() - self.counted)?;
            match (&mut self.held, more) {
                (Some(held), Some(more)) => held.merge(more),
                (held, more) => *held = more.or(held.take()),
            }
            self.counted = self.buffer.len();
        }
        Ok(())
    }
}

/// A message on its way in.
struct Arrived {
    line: u64,
    request: Request,
    /// What is left of its wait, if it is to be paused.
    remaining: Option<Span>,
}

struct Import<'a> {
    shared: &'a Arc<Shared>,
    topic: &'a TopicName,
    waiting: Vec<Arrived>,
    waiting_bytes: usize,
    view: ImportView,
}

impl<'a> Import<'a> {
    fn new(shared: &'a Arc<Shared>, topic: &'a TopicName) -> Self {
        let (waiting, view) = (Vec::new(), ImportView::default());
        Self { shared, topic, waiting, waiting_bytes: 0, view }
    }

    async fn take(&mut self, number: u64, line: Line) -> Result<(), Problem> {
        let read = match &line {
            Line::Text(text) => ImportLine::read(text, READ_LIMITS),
            Line::TooLong => {
                let detail = format!("a line has at most {LINE_BYTES_MAX} bytes");
                Err(Problem::new(Code::LineTooLarge, detail))
            }
        };
        let arrived = match read {
            Ok(ImportLine::End) => return Ok(()),
            Ok(ImportLine::Message(message)) => self.arrived(number, *message),
            Err(problem) => Err(problem),
        };
        match arrived {
            Ok(arrived) => {
                self.waiting_bytes += arrived.request.message.weight();
                self.waiting.push(arrived);
            }
            Err(problem) => self.fail(number, &problem),
        }
        if self.waiting.len() >= BATCH_MESSAGES || self.waiting_bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// What the broker is asked for.
    fn arrived(&self, line: u64, message: ImportMessage<'_>) -> Result<Arrived, Problem> {
        let remaining = message
            .remaining
            .as_deref()
            .map(|text| time::span("remaining", text, (Span::from_millis(1), DELAY_CEILING)));
        let remaining = remaining.transpose()?;
        let mut request = to_request(message.message)?;
        if request.own_id.is_some() || request.on_conflict == OnConflict::Replace {
            let detail = "an import never takes the place of what is there";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        request.own_id = Some(match message.own_id {
            Some(own_id) => own_id.as_ref().into(),
            None => format!("{OWN_ID_PREFIX}{}", message.id).into(),
        });
        let topic = self.shared.broker.topics().by_name(self.topic);
        let partitions =
            topic.as_ref().map_or(PARTITIONS_DEFAULT, |topic| topic.settings.partitions);
        // A topic with fewer partitions takes it as it takes any other message.
        request.partition = request.partition.filter(|partition| *partition < partitions);
        if let Some(remaining) = remaining {
            let most = topic.and_then(|topic| topic.settings.max_delay);
            let most = most.unwrap_or(self.shared.delay_max).min(self.shared.delay_max);
            request.when = When::After(remaining.max(UNTIL_PAUSED.min(most)));
        } else {
            self.ease_round(&mut request);
        }
        Ok(Arrived { line, request, remaining })
    }

    /// A rule may be further ahead than a delay may be long; then it says itself what is next.
    fn ease_round(&self, request: &mut Request) {
        let (Some(repeat), When::At(first)) = (&request.repeat, request.when) else { return };
        let now = self.shared.broker.now();
        if first.since(now) > self.shared.delay_max && repeat.rule.first(now) == Some(first) {
            request.when = When::Now;
        }
    }

    /// Stores what waits: together, or, when one of them is refused, one by one.
    async fn flush(&mut self) -> Result<(), Problem> {
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let requests = waiting.iter().map(|arrived| arrived.request.clone()).collect();
        match self.shared.broker.schedule(self.topic, requests).await {
            Ok(answers) => {
                for (arrived, answer) in waiting.iter().zip(answers) {
                    self.stored(arrived, answer).await?;
                }
            }
            Err(ScheduleError::Invalid { .. } | ScheduleError::OwnIdTaken { .. }) => {
                for arrived in waiting {
                    self.store_one(arrived).await?;
                }
            }
            Err(other) => return Err(of_schedule(other, false)),
        }
        Ok(())
    }

    async fn store_one(&mut self, arrived: Arrived) -> Result<(), Problem> {
        let request = vec![arrived.request.clone()];
        match self.shared.broker.schedule(self.topic, request).await {
            Ok(answers) => {
                let answer = answers.first().copied().ok_or(Code::Internal)?;
                self.stored(&arrived, answer).await
            }
            Err(error @ (ScheduleError::Invalid { .. } | ScheduleError::OwnIdTaken { .. })) => {
                self.fail(arrived.line, &of_schedule(error, false));
                Ok(())
            }
            Err(other) => Err(of_schedule(other, false)),
        }
    }

    /// Counts a message that is here now, and pauses it if it was paused.
    async fn stored(&mut self, arrived: &Arrived, answer: Scheduled) -> Result<(), Problem> {
        match answer.duplicate {
            true => self.view.duplicates += 1,
            false => self.view.imported += 1,
        }
        let Some(remaining) = arrived.remaining else { return Ok(()) };
        // An import that broke off may have left it as it came; later changes are not undone.
        if !answer.duplicate || self.is_untouched(answer).await? {
            let when = Some(When::After(remaining));
            let change = Change { when, paused: Some(true), ..Change::default() };
            let paused = self.shared.broker.change(answer.id, change).await;
            paused.map_err(of_change)?;
        }
        Ok(())
    }

    async fn is_untouched(&self, answer: Scheduled) -> Result<bool, Problem> {
        let id: MessageId = answer.id;
        if answer.state != State::Scheduled {
            return Ok(false);
        }
        let report = self.shared.broker.get(id).await.map_err(of_store)?;
        Ok(report.is_some_and(|report| report.version == Some(1)))
    }

    fn fail(&mut self, line: u64, problem: &Problem) {
        self.view.failed_count += 1;
        if self.view.failed.len() < FAILED_MAX {
            self.view.failed.push(FailedLine {
                line,
                code: problem.code.as_str(),
                detail: problem.detail.to_string(),
            });
        }
    }
}
