//! Import: pending messages from elsewhere, one a line, taken in while they arrive.
//!
//! A message without a name of its own is given one made of the id it had, so that an import that is
//! repeated changes nothing. Lines that cannot be taken are told and left out; everything else that
//! goes wrong ends the import, and what was taken in stays.

use std::sync::Arc;

use http::StatusCode;
use punctual_api::request::Parameters;
use punctual_api::transfer::{FailedLine, ImportLine, ImportMessage, ImportView};
use punctual_api::{Code, Problem};
use punctual_broker::{Change, Request, ScheduleError, Scheduled, When};
use punctual_model::limits::{DELAY_CEILING, PARTITIONS_DEFAULT};
use punctual_model::ports::OnConflict;
use punctual_model::{MessageId, Span, State, TopicName};

use crate::access::{Caller, Charged, Cost};
use crate::http::asked::to_request;
use crate::http::audit::{self, Asker};
use crate::http::body::Arriving;
use crate::http::call::Call;
use crate::http::export::{NDJSON, turn};
use crate::http::lines::{LINE_BYTES_MAX, Line, Lines, Pace};
use crate::http::messages::{READ_LIMITS, require_type};
use crate::http::problem::{of_change, of_schedule, of_store};
use crate::http::reply::{Reply, json};
use crate::http::shared::Shared;
use crate::http::time;

/// Messages stored together.
const BATCH_MESSAGES: usize = 256;
/// Bytes of messages stored together; the last one may pass it.
const BATCH_BYTES: usize = 2 << 20;
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
    body: Arriving,
) -> Result<ImportView, Problem> {
    let caller = asker.caller().clone();
    let work = async {
        let mut lines = Lines::new(shared, body, Pace::Transfer);
        let mut import = Import::new(shared, topic, caller);
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
    caller: Caller,
    waiting: Vec<Arrived>,
    waiting_bytes: usize,
    view: ImportView,
}

impl<'a> Import<'a> {
    fn new(shared: &'a Arc<Shared>, topic: &'a TopicName, caller: Caller) -> Self {
        let (waiting, view) = (Vec::new(), ImportView::default());
        Self { shared, topic, caller, waiting, waiting_bytes: 0, view }
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
            let most = most.unwrap_or(self.shared.delay_max()).min(self.shared.delay_max());
            request.when = When::After(remaining.max(UNTIL_PAUSED.min(most)));
        } else {
            self.ease_round(&mut request);
        }
        self.caller.sign([&mut request]);
        Ok(Arrived { line, request, remaining })
    }

    /// A rule may be further ahead than a delay may be long; then it says itself what is next.
    fn ease_round(&self, request: &mut Request) {
        let (Some(repeat), When::At(first)) = (&request.repeat, request.when) else { return };
        let now = self.shared.broker.now();
        if first.since(now) > self.shared.delay_max() && repeat.rule.first(now) == Some(first) {
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
        let cost = Cost::of(waiting.iter().map(|arrived| &arrived.request.message));
        let charged = self.caller.charge(cost)?;
        let requests = waiting.iter().map(|arrived| arrived.request.clone()).collect();
        match self.shared.broker.schedule(self.topic, requests).await {
            Ok(answers) => {
                for (arrived, answer) in waiting.iter().zip(answers) {
                    self.stored(&charged, arrived, answer).await?;
                }
            }
            Err(ScheduleError::Invalid { .. } | ScheduleError::OwnIdTaken { .. }) => {
                for arrived in waiting {
                    self.store_one(&charged, arrived).await?;
                }
            }
            Err(other) => return Err(of_schedule(other, false)),
        }
        Ok(())
    }

    async fn store_one(&mut self, charged: &Charged, arrived: Arrived) -> Result<(), Problem> {
        let request = vec![arrived.request.clone()];
        match self.shared.broker.schedule(self.topic, request).await {
            Ok(answers) => {
                let answer = answers.first().copied().ok_or(Code::Internal)?;
                self.stored(charged, &arrived, answer).await
            }
            Err(error @ (ScheduleError::Invalid { .. } | ScheduleError::OwnIdTaken { .. })) => {
                self.fail(arrived.line, &of_schedule(error, false));
                Ok(())
            }
            Err(other) => Err(of_schedule(other, false)),
        }
    }

    /// Counts a message that is here now, and pauses it if it was paused.
    async fn stored(
        &mut self,
        charged: &Charged,
        arrived: &Arrived,
        answer: Scheduled,
    ) -> Result<(), Problem> {
        if answer.duplicate {
            self.view.duplicates += 1;
        } else {
            self.view.imported += 1;
            charged.stored_part(Cost::of([&arrived.request.message]));
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
