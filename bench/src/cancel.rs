//! Durable batched cancelling, of ids that are pending and of ids that are not.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use punctual_broker::When;
use punctual_model::ports::CancelOutcome;
use punctual_model::{Clock as _, Key, MessageId, Sequence, Span, SystemClock};
use serde_json::json;

use crate::args::{CancelOptions, Common};
use crate::load::{Load, far};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, number, say, short};
use crate::rig::{Place, Rig, disk_needed};

const WAIT_MAX: Duration = Duration::from_secs(300);

/// One kind of ids and what every cancel of it must answer.
struct Kind {
    name: &'static str,
    ids: Vec<MessageId>,
    outcome: CancelOutcome,
}

pub(crate) fn run(common: &Common, options: &CancelOptions) -> Result<()> {
    ensure!(options.cancels <= options.pending, "more cancels than messages");
    let place = Place::fresh(common, disk_needed(options.pending, options.load.body))?;
    let rig = Rig::open(place.path(), common)?;
    let settings = json!({
        "pending": options.pending, "cancels": options.cancels, "ids_per_cancel": options.ids,
        "in_flight": options.load.in_flight, "body": options.load.body,
    });
    let name = format!("cancel-{}-of-{}", short(options.cancels), short(options.pending));
    let mut report = Report::new(name, common, settings);
    let columns = ["ids", "ids/s", "CPU s/M", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"];
    let mut table = Table::new("ids that are", &columns);
    let mut latencies = Vec::new();
    let kinds = kinds(&rig, options)?;
    for (index, kind) in kinds.iter().enumerate() {
        let (cost, latency) = cancel_all(&rig, options, kind)?;
        say(&format!("{:>28}  {:>12} /s", kind.name, number(cost.rate())));
        let mut row = vec![cost.messages as f64, cost.rate(), cost.cpu_per_million()];
        row.extend(latency.millis());
        table.row(kind.name, row);
        latencies.push((kind.name, latency));
        if index == 0 {
            report.cost(&cost);
        }
    }
    report.table(table);
    let rows: Vec<_> = latencies.iter().map(|(name, latency)| (*name, latency)).collect();
    report.latency_chart("latency of a batch of cancels", &rows);
    report.memory(memory_of(std::process::id()));
    report.disk(place.path(), options.pending);
    rig.close()?;
    report.finish(common)?;
    place.clear()
}

/// Fills the store and chooses the ids, each kind in random order.
fn kinds(rig: &Rig, options: &CancelOptions) -> Result<Vec<Kind>> {
    let keep_one_of = usize::try_from(options.pending / options.cancels.max(1))?;
    let load = Load::new(rig, options.load, far).keeping(keep_one_of);
    let mut pending = load.send(options.pending)?.ids;
    let now = |_: &mut Random| When::Now;
    let mut delivered = Load::new(rig, options.load, now).keeping(1).send(options.cancels)?.ids;
    ensure!(rig.watch.wait_for(options.cancels, WAIT_MAX), "not all came out in five minutes");
    let mut random = Random::new(99);
    let most = usize::try_from(options.cancels)?;
    random.shuffle(&mut pending);
    random.shuffle(&mut delivered);
    pending.truncate(most);
    let with_due = |id: &MessageId, due| MessageId { key: Key { due, ..id.key }, ..*id };
    let later = |id: &MessageId| with_due(id, id.key.due.saturating_add(Span::from_millis(1)));
    let sooner = |id: &MessageId| with_due(id, id.key.due.saturating_sub(Span::from_millis(1)));
    let mut unissued = |id: &MessageId| {
        let sequence = Sequence::new((1 << 50) + random.below(1 << 50)).unwrap_or(Sequence::MAX);
        MessageId { key: Key { sequence, ..id.key }, ..*id }
    };
    use CancelOutcome::{AlreadyCancelled, AlreadyDelivered, Cancelled, NotFound};
    Ok(vec![
        Kind { name: "pending", ids: pending.clone(), outcome: Cancelled },
        Kind {
            name: "unknown, never given out",
            ids: pending.iter().map(&mut unissued).collect(),
            outcome: NotFound,
        },
        Kind {
            name: "unknown, another due time",
            ids: pending.iter().map(later).collect(),
            outcome: NotFound,
        },
        Kind { name: "cancelled before", ids: pending, outcome: AlreadyCancelled },
        Kind {
            name: "unknown, due in the past",
            ids: delivered.iter().map(sooner).collect(),
            outcome: NotFound,
        },
        Kind { name: "delivered before", ids: delivered, outcome: AlreadyDelivered },
    ])
}

fn cancel_all(rig: &Rig, options: &CancelOptions, kind: &Kind) -> Result<(Cost, Latency)> {
    let clock = SystemClock::new();
    let (started, cpu) = (clock.read().monotonic, measure::cpu());
    let mut latency = Latency::new();
    let mut surprises = 0;
    let mut answered = 0;
    let end = started + Duration::from_secs(options.secs_max);
    let mut batches = kind.ids.chunks(options.ids);
    let mut waiting = FuturesUnordered::new();
    futures_executor::block_on(async {
        loop {
            while waiting.len() < options.load.in_flight && clock.read().monotonic < end {
                let Some(ids) = batches.next() else { break };
                waiting.push(async {
                    let started = clock.read().monotonic;
                    let answer = rig.broker.cancel(ids.to_vec()).await;
                    (answer, clock.read().monotonic.saturating_sub(started))
                });
            }
            let Some((answer, took)) = waiting.next().await else { return Ok(()) };
            latency.note(took);
            let answer = answer?;
            answered += answer.len() as u64;
            surprises += answer.iter().filter(|outcome| **outcome != kind.outcome).count();
        }
    })
    .map_err(|error: punctual_model::ports::StoreError| anyhow::Error::from(error))?;
    let cost = Cost {
        messages: answered,
        took: clock.read().monotonic.saturating_sub(started),
        cpu: measure::cpu().saturating_sub(cpu),
    };
    ensure!(surprises == 0, "{surprises} ids `{}` were not {:?}", kind.name, kind.outcome);
    Ok((cost, latency))
}
