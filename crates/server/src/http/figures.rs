//! Figures once a second, for live views, as server-sent events.
//!
//! However many look on, the broker is looked at once a second, and while nobody does not at all. The
//! looks of the last minute are kept, for rates and for what is told of that time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{CACHE_CONTROL, HeaderValue};
use parking_lot::Mutex;
use punctual_api::Problem;
use punctual_api::request::Parameters;
use punctual_api::stats::{LiveView, RatesView, TotalsView};
use punctual_model::Buckets;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::access::{Caller, Permission, Target};
use crate::http::call::Call;
use crate::http::receive_stream::{EVENTS, turn};
use crate::http::reply::{Cut, Piece, Reply, written_for};
use crate::http::shared::Shared;
use crate::http::stats::{Looked, count, latency, look, pending, sum, totals, totals_view};
use crate::trends::MessageCounts;

/// How often.
const BEAT: Duration = Duration::from_secs(1);
/// Rates are those of this time.
const RATE_TIME: Duration = Duration::from_secs(5);
/// Looks that are kept: those of a minute.
const KEPT: usize = 61;

/// What live views are told, and what it is made of.
pub(crate) struct Pulse {
    told: watch::Sender<Bytes>,
    beating: Mutex<bool>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { told: watch::Sender::new(Bytes::new()), beating: Mutex::default() }
    }
}

/// `GET /v1/live`
pub(crate) async fn stream(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let turn = turn(&call.shared)?;
    let (pieces, source) = mpsc::channel(1);
    if call.parts.method != Method::HEAD {
        let mut told = subscribe(&call.shared);
        let (caller, tasks) = (call.caller().clone(), call.shared.tasks.clone());
        call.shared.tasks.spawn(async move {
            tokio::select! {
                () = tell(&mut told, &caller, &pieces) => {}
                () = pieces.closed() => {}
                () = tasks.stopped() => {}
            }
            drop(turn);
        });
    }
    let mut reply = written_for(call.peer, EVENTS, source);
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

async fn tell(
    told: &mut watch::Receiver<Bytes>,
    caller: &Caller,
    pieces: &mpsc::Sender<Result<Piece, Cut>>,
) {
    let may = || caller.still_stands().is_ok() && caller.may(Permission::Observe, Target::Whole);
    while may() {
        // Not older than a second; before the first beat there is nothing.
        let event = told.borrow_and_update().clone();
        if !event.is_empty() && pieces.send(Ok(Piece::from(event.to_vec()))).await.is_err() {
            return;
        }
        if told.changed().await.is_err() {
            return;
        }
    }
}

/// Somebody looks on. The first one starts the beat.
fn subscribe(shared: &Arc<Shared>) -> watch::Receiver<Bytes> {
    let mut beating = shared.pulse.beating.lock();
    if !*beating {
        *beating = true;
        shared.pulse.told.send_replace(Bytes::new());
        let shared_too = Arc::clone(shared);
        shared.tasks.spawn(async move { beat(&shared_too).await });
    }
    shared.pulse.told.subscribe()
}

async fn beat(shared: &Arc<Shared>) {
    let mut looks = Looks::default();
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.tasks.stopped() => return,
        }
        {
            let mut beating = shared.pulse.beating.lock();
            if shared.pulse.told.receiver_count() == 0 {
                *beating = false;
                return;
            }
        }
        let looking = Arc::clone(shared);
        let Ok(looked) = shared.tasks.blocking(move || look(&looking)).await else { return };
        let view = looks.take(shared, &looked);
        let mut event = b"event: figures\ndata: ".to_vec();
        serde_json::to_writer(&mut event, &view).expect("figures are plain JSON");
        event.extend_from_slice(b"\n\n");
        shared.pulse.told.send_replace(event.into());
    }
}

/// The looks of the last minute, the oldest first.
#[derive(Default)]
struct Looks(VecDeque<Look>);

struct Look {
    when: Instant,
    counted: TotalsView,
    lateness: Buckets,
}

impl Looks {
    fn take(&mut self, shared: &Shared, looked: &Looked) -> LiveView {
        let Looked { stats, topics, lags, memory_bytes, store_bytes } = looked;
        let now = Instant::now();
        // What this process has counted: totals of other nodes come in steps.
        let counted = totals_view(MessageCounts::from(stats));
        self.0.push_back(Look { when: now, counted, lateness: stats.lateness.clone() });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
        LiveView {
            now: shared.broker.now().to_string(),
            node: shared.nodes.told_name(),
            topic_count: *topics,
            group_count: count(lags.len()),
            app_count: count(shared.gate.count()),
            pending: pending(stats),
            lag: sum(lags, |of| of.lag),
            in_flight: sum(lags, |of| of.in_flight),
            retrying: sum(lags, |of| of.retrying),
            dead_letters: sum(lags, |of| of.dead),
            totals: totals(shared, stats),
            rates: self.rates(now),
            lateness: latency(&self.lateness()),
            success_rate: self.success_rate(),
            memory_bytes: *memory_bytes,
            store_bytes: *store_bytes,
            alerts_firing: count(shared.alerts.firing_count()),
        }
    }

    fn rates(&self, now: Instant) -> RatesView {
        let recent = self.0.iter().find(|look| now - look.when <= RATE_TIME);
        let (Some(first), Some(last)) = (recent, self.0.back()) else {
            return RatesView::default();
        };
        let secs = (last.when - first.when).as_secs_f64();
        if secs <= 0.0 {
            return RatesView::default();
        }
        let rate = |figure: fn(&TotalsView) -> u64| {
            let grown = figure(&last.counted).saturating_sub(figure(&first.counted));
            // Two digits are plenty.
            (float(grown) / secs * 100.0).round() / 100.0
        };
        RatesView {
            scheduled: rate(|of| of.scheduled),
            fired: rate(|of| of.fired),
            delivered: rate(|of| of.delivered),
            received: rate(|of| of.received),
            acked: rate(|of| of.acked),
            cancelled: rate(|of| of.cancelled),
            skipped: rate(|of| of.skipped),
            retried: rate(|of| of.retried),
            dead: rate(|of| of.dead),
        }
    }

    fn lateness(&self) -> Buckets {
        let ends = self.0.front().zip(self.0.back());
        ends.map_or_else(Buckets::default, |(first, last)| last.lateness.since(&first.lateness))
    }

    fn success_rate(&self) -> Option<f64> {
        let (first, last) = self.0.front().zip(self.0.back())?;
        let grown = |figure: fn(&TotalsView) -> u64| {
            figure(&last.counted).saturating_sub(figure(&first.counted))
        };
        let (done, failed) = (grown(|of| of.acked), grown(|of| of.retried + of.dead));
        (done + failed > 0).then(|| float(done) / float(done + failed))
    }
}

/// Close enough: what happens in a minute has far fewer digits than a float.
fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
