//! What it takes to remember acks that leave gaps: every other message is acked, the first never.
//!
//! Straight against the store, whose business this is: a broker would stop handing out messages
//! long before, because of those that are not acked.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_broker::When;
use punctual_model::group::{Group, GroupChange, GroupName, GroupSettings, Mark, Source, Start};
use punctual_model::ports::{Groups as _, Topics as _};
use punctual_model::{Clock as _, Partition, SystemClock};
use serde_json::json;

use crate::args::{AckedSetOptions, Common, LoadOptions};
use crate::load::{Load, topic};
use crate::measure::{self, Latency, memory_of};
use crate::picture::{Chart, Series};
use crate::random::Random;
use crate::report::{Cost, Report, Table, short};
use crate::rig::{Place, Rig, disk_needed, pause};

const WAIT_MAX: Duration = Duration::from_secs(300);
/// Messages read at once.
const PAGE: usize = 1000;
/// Looks at the memory along the way.
const LOOKS: u64 = 20;

pub(crate) fn run(common: &Common, options: &AckedSetOptions) -> Result<()> {
    let place = Place::fresh(common, disk_needed(2 * options.messages, 32))?;
    let rig = Rig::open(place.path(), common)?;
    let load = LoadOptions { body: 0, ..options.load };
    Load::new(&rig, load, |_: &mut Random| When::Now).send(options.messages)?;
    ensure!(rig.watch.wait_for(options.messages, WAIT_MAX), "not all came out in five minutes");
    let name = GroupName::new("gaps")?;
    let consumers = rig.broker.consumers();
    let group = consumers.put(&topic(), &name, GroupSettings::default(), Start::Earliest)?.group();
    // Once through without an ack, so that what reading takes is not counted.
    let unsettled = read_all(&rig, &group, |_, _| Ok(()))?;
    ensure!(unsettled == options.messages, "{unsettled} messages are there");

    let before = steady_memory();
    let (acked, memory) = ack_every_other(&rig, &group, options, before)?;
    let settings = json!({ "messages": options.messages, "body": 0, "partitions": 4 });
    let mut report =
        Report::new(format!("acked-set-{}", short(acked.cost.messages)), common, settings);
    let after = steady_memory();
    report.cost(&acked.cost);
    let growth = (after as f64 - before as f64) / f64::from(1 << 20);
    report.figure("memory before, MiB", before as f64 / f64::from(1 << 20));
    report.figure("memory for it, MiB", growth);
    report.figure(
        "bits per message acked",
        growth * 8.0 * f64::from(1 << 20) / acked.cost.messages as f64,
    );
    report.table(Table::of_latency("latency").latency("acks of 500", &acked.latency));
    report.latency_chart("latency of acks", &[("acks", &acked.latency)]);
    report.chart(memory);
    report.memory(memory_of(std::process::id()));
    report.disk(place.path(), options.messages);
    rig.close()?;

    let clock = SystemClock::new();
    let rig = Rig::open(place.path(), common)?;
    report.figure("open again, ms", clock.read().monotonic.as_secs_f64() * 1e3);
    let unsettled = read_all(&rig, &group, |_, _| Ok(()))?;
    report.figure("not acked after opening again", unsettled as f64);
    rig.close()?;
    report.finish(common)?;
    let expected = options.messages - acked.cost.messages;
    ensure!(unsettled == expected, "{unsettled} are not acked instead of {expected}");
    place.clear()
}

/// Resident memory once what was let go has been given back, as far as it is.
fn steady_memory() -> u64 {
    const STEADY_LOOKS: usize = 10;
    let mut looks = vec![memory_of(std::process::id()).now];
    while looks.len() < 10 * STEADY_LOOKS {
        pause(Duration::from_millis(100));
        looks.push(memory_of(std::process::id()).now);
        let last = looks.iter().rev().take(STEADY_LOOKS);
        let (least, most) = (last.clone().min(), last.max());
        if looks.len() > STEADY_LOOKS && most.zip(least).is_some_and(|(a, b)| a - b < 1 << 18) {
            break;
        }
    }
    looks.last().copied().unwrap_or_default()
}

struct Acked {
    cost: Cost,
    latency: Latency,
}

/// Acks every other message; answers also how memory grew.
fn ack_every_other(
    rig: &Rig,
    group: &Group,
    options: &AckedSetOptions,
    before: u64,
) -> Result<(Acked, Chart)> {
    let (clock, cpu) = (SystemClock::new(), measure::cpu());
    let (mut latency, mut points) = (Latency::new(), vec![(0.0, 0.0)]);
    let (mut count, step) = (0, (options.messages / 2 / LOOKS).max(1));
    read_all(rig, group, |source, marks| {
        let every_other: Vec<Mark> =
            marks.iter().filter(|mark| mark.offset % 2 == 1).copied().collect();
        let started = clock.read().monotonic;
        let looks = count / step;
        count += every_other.len() as u64;
        let change = GroupChange::Settle(source, every_other);
        futures_executor::block_on(rig.engine.apply(vec![change], Vec::new()))?;
        latency.note(clock.read().monotonic.saturating_sub(started));
        if count / step > looks {
            let grown = memory_of(std::process::id()).now as f64 - before as f64;
            points.push((count as f64 / 1e6, grown / f64::from(1 << 20)));
        }
        Ok(())
    })?;
    let took = clock.read().monotonic;
    let cost = Cost { messages: count, took, cpu: measure::cpu().saturating_sub(cpu) };
    let ticks = points.iter().step_by(5).map(|(x, _)| (*x, format!("{x:.1}"))).collect();
    let chart = Chart {
        title: "memory".to_owned(),
        x_label: "million acked".to_owned(),
        y_label: "MiB more".to_owned(),
        x_ticks: ticks,
        log_y: false,
        series: vec![Series { name: "resident".to_owned(), points }],
    };
    Ok((Acked { cost, latency }, chart))
}

/// Reads what the group has not settled, a page at a time; answers how much that is.
fn read_all(
    rig: &Rig,
    group: &Group,
    mut each: impl FnMut(Source, &[Mark]) -> Result<()>,
) -> Result<u64> {
    let topic = rig.engine.by_id(group.topic).context("the topic is there")?;
    let mut count = 0;
    for number in 0..topic.settings.partitions {
        let partition = Partition::new(number).context("a partition of the topic")?;
        let source = Source { group: group.id, topic: group.topic, partition };
        let mut from = 0;
        loop {
            let pulled = rig.engine.pull(source, from, PAGE)?;
            let mark = |delivered: &punctual_model::ports::Delivered| Mark {
                offset: delivered.offset,
                sequence: delivered.id.key.sequence,
            };
            let marks: Vec<Mark> = pulled.messages.iter().map(|(one, _)| mark(one)).collect();
            if marks.is_empty() && pulled.next == from {
                break;
            }
            from = pulled.next;
            count += marks.len() as u64;
            each(source, &marks)?;
        }
    }
    Ok(count)
}
