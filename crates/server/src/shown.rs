//! Messages as they are shown, whoever asks for them.

use punctual_api::answer::{Content, MessageView, Round};
use punctual_api::repeat;
use punctual_api::transaction::{CheckView, CheckedView};
use punctual_broker::group::{ATTEMPTS_HEADER, TTL_HEADER};
use punctual_broker::series::{Repeat, Rule, Series};
use punctual_broker::transaction::Check;
use punctual_broker::{CATCH_UP_HEADER, Report, SENDER_HEADER, sender_of};
use punctual_model::ports::PendingEntry;
use punctual_model::{CatchUp, GroupName, Header, Message, Span, State, TopicName};

/// Everything that is known of a message.
pub(crate) fn report_view(report: &Report) -> MessageView<'_> {
    let delivered = report.delivered.as_ref();
    let message = report.message.as_ref().or(delivered.map(|delivered| &delivered.message));
    MessageView {
        id: report.id.to_string(),
        own_id: report.own_id.as_deref(),
        topic: report.topic.name.as_str(),
        state: Some(report.state.word()),
        due: report.due.map(|due| due.to_string()),
        version: report.version,
        remaining: report.remaining.map(|remaining| remaining.to_string()),
        series: report.series.map(|id| id.to_string()),
        transaction: report.transaction.map(|id| id.to_string()),
        delivered_at: delivered.map(|delivered| delivered.delivered_at.to_string()),
        partition: report.id.partition.get(),
        offset: delivered.map(|delivered| delivered.offset),
        round: None,
        content: message.map(content),
    }
}

/// A series, which is its message and when that comes round.
pub(crate) fn series_view<'a>(
    topic: &'a TopicName,
    entry: &'a PendingEntry,
    series: &'a Series,
) -> MessageView<'a> {
    let own_id = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
    MessageView {
        id: entry.id.to_string(),
        own_id: own_id.map(|own_id| &*own_id.text),
        topic: topic.as_str(),
        state: Some(State::Scheduled.word()),
        due: Some(series.next.to_string()),
        partition: entry.id.partition.get(),
        round: Some(Round {
            repeat: repeat_view(&series.repeat),
            number: series.number,
            occurrence: series.occurrence.map(|id| id.to_string()),
        }),
        content: Some(content(&series.message)),
        ..MessageView::default()
    }
}

/// When a message comes round.
pub(crate) fn repeat_view(repeat: &Repeat) -> repeat::Repeat<'_> {
    repeat::Repeat {
        rule: match &repeat.rule {
            Rule::Every(every) => repeat::Rule::Every(every.interval().to_string().into()),
            Rule::Cron(cron) => {
                repeat::Rule::Cron { cron: cron.text().into(), zone: Some(cron.zone().into()) }
            }
        },
        count: repeat.count.map(|count| u64::from(count.get())),
        until: repeat.until.map(|until| until.to_string().into()),
    }
}

/// What becomes of what was missed.
pub(crate) fn catch_up_view(policy: CatchUp) -> repeat::CatchUp<'static> {
    match policy {
        CatchUp::All => repeat::CatchUp::All,
        CatchUp::Latest => repeat::CatchUp::Latest,
        CatchUp::Spread(over) => repeat::CatchUp::Spread(over.to_string().into()),
        CatchUp::SkipOlder(than) => repeat::CatchUp::SkipOlderThan(than.to_string().into()),
    }
}

/// What was asked for by a field and travels as a header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskedBy {
    pub(crate) ttl: Option<Span>,
    pub(crate) max_attempts: Option<u16>,
    pub(crate) catch_up: Option<CatchUp>,
}

/// What was asked for by fields, and the headers that are the sender's own.
pub(crate) fn asked_by(message: &Message) -> (AskedBy, impl Iterator<Item = &Header>) {
    let mut asked = AskedBy::default();
    let mut taken = [None; 3];
    for (place, header) in message.headers.iter().enumerate() {
        let text = || std::str::from_utf8(&header.value).ok();
        let found = match header.name.as_str() {
            TTL_HEADER if asked.ttl.is_none() => {
                asked.ttl = text().and_then(|text| text.parse().ok()).map(Span::from_millis);
                asked.ttl.map(|_| 0)
            }
            ATTEMPTS_HEADER if asked.max_attempts.is_none() => {
                asked.max_attempts = text().and_then(|text| text.parse().ok());
                asked.max_attempts.map(|_| 1)
            }
            CATCH_UP_HEADER if asked.catch_up.is_none() => {
                asked.catch_up = text().and_then(read_catch_up);
                asked.catch_up.map(|_| 2)
            }
            _ => None,
        };
        if let Some(slot) = found.and_then(|which: usize| taken.get_mut(which)) {
            *slot = Some(place);
        }
    }
    let own = move |(place, header): &(usize, &Header)| {
        !taken.contains(&Some(*place)) && header.name != SENDER_HEADER
    };
    (asked, message.headers.iter().enumerate().filter(own).map(|(_, header)| header))
}

/// Key, headers and body as they are shown. What was asked for by a field is shown as the field
/// again.
pub(crate) fn content(message: &Message) -> Content<'_> {
    let (asked, own) = asked_by(message);
    let mut headers = Vec::with_capacity(message.headers.len());
    headers.extend(own.map(|header| (header.name.as_str(), &header.value[..])));
    Content {
        key: message.key.as_deref(),
        headers,
        ttl: asked.ttl.map(|ttl| ttl.to_string()),
        max_attempts: asked.max_attempts,
        catch_up: asked.catch_up.map(catch_up_view),
        app: sender_of(message),
        body: &message.body,
    }
}

/// What the header says: `all`, `latest`, or a word and milliseconds.
fn read_catch_up(text: &str) -> Option<CatchUp> {
    let span = |millis: &str| millis.parse().ok().map(Span::from_millis);
    match text.split_once(':') {
        None if text == "all" => Some(CatchUp::All),
        None if text == "latest" => Some(CatchUp::Latest),
        Some(("spread", millis)) => span(millis).map(CatchUp::Spread),
        Some(("skip_older", millis)) => span(millis).map(CatchUp::SkipOlder),
        _ => None,
    }
}

/// The question what became of a transaction, as it is sent.
pub(crate) fn check_view<'a>(
    check: &'a Check,
    producer_group: Option<&'a GroupName>,
) -> CheckView<'a> {
    CheckView {
        transaction: check.transaction.to_string(),
        producer_group: producer_group.map(GroupName::as_str),
        attempt: check.attempt,
        messages: check
            .messages
            .iter()
            .map(|half| CheckedView {
                id: half.id.to_string(),
                own_id: half.own_id.as_deref(),
                topic: half.topic.as_str(),
                content: content(&half.message),
            })
            .collect(),
    }
}
