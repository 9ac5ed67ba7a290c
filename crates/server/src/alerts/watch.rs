//! The loop: looks at everything every now and then, and tells what has changed.
//!
//! A look takes a handful of counters, whatever the number of messages. Nothing that does not answer
//! holds it up: what could not be read in time is unknown until the next look.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_api::alert::AlertsView;
use punctual_broker::pulse::{Pulse, Worst};
use punctual_model::{Span, Timestamp};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use crate::alerts::book::{Book, Event, Moment, Seen};
use crate::alerts::lookout::{Lookout, Read};
use crate::alerts::roster::Roster;
use crate::alerts::webhook::{Now, Told, Webhook};
use crate::http::shared::Shared;
use crate::live::Live;
use crate::machine::{self, Room};
use crate::push::Connector;
use crate::tasks::BrokenOff;

/// How long a store may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The alerts, for whoever looks at them.
pub(crate) struct Alerts {
    book: Mutex<Book>,
    webhook: Webhook,
    /// The configuration may have changed.
    changed: Arc<Notify>,
}

impl Alerts {
    pub(crate) fn new(live: &Live, connector: Arc<Connector>, now: Now) -> Self {
        let changed = Arc::new(Notify::new());
        let told = Arc::clone(&changed);
        live.follow(move |_| told.notify_one());
        let webhook = Webhook::new(live.clone(), connector, now);
        Self { book: Mutex::default(), webhook, changed }
    }

    /// How many rules fire.
    pub(crate) fn firing_count(&self) -> usize {
        self.firing().into_iter().filter(|(_, fires)| *fires).count()
    }

    /// Which rules fire, by name.
    pub(crate) fn firing(&self) -> impl IntoIterator<Item = (&'static str, bool)> + use<> {
        self.book.lock().firing()
    }

    /// Everything as it is shown.
    pub(crate) fn view(&self, live: &Live) -> AlertsView {
        let current = live.read();
        let book = self.book.lock();
        let (rules, history) = (book.rules(&current.config.alerts), book.history());
        drop(book);
        AlertsView { rules, history, webhook: self.webhook.view() }
    }

    /// Sends a test, and waits for what comes of it.
    pub(crate) async fn test(&self, at: Timestamp, node: String) -> Told {
        let event = Event::test(at);
        let news = event.notice(node);
        self.book.lock().note(event);
        self.webhook.tell(&news).await
    }
}

/// Watches, and tells, until the tasks are asked to stop.
pub(crate) fn start(shared: &Arc<Shared>) {
    let told = Arc::clone(shared);
    shared.tasks.spawn(async move { told.alerts.webhook.run(&told.tasks).await });
    let watched = Arc::clone(shared);
    shared.tasks.spawn(async move { watch(&watched).await });
}

async fn watch(shared: &Arc<Shared>) {
    let start = Instant::now();
    let (mut lookout, mut roster) = (Lookout::default(), Roster::default());
    let mut counting = None;
    loop {
        let interval = shared.live().config.alerts.interval;
        let mut read = look(shared, &mut counting).await;
        read.nodes = nodes(shared, &mut roster, start.elapsed());
        let since_start = start.elapsed();
        let events = {
            let current = shared.live();
            let config = &current.config.alerts;
            let seen = lookout.see(read, since_start, config.window);
            let now = Moment { at: shared.broker.now(), since_start };
            shared.alerts.book.lock().take(seen, now, config)
        };
        events.iter().for_each(|event| tell(shared, event));
        tokio::select! {
            () = shared.tasks.stopped() => return,
            // Woken earlier or not: it is looked again.
            _woken = timeout(interval, shared.alerts.changed.notified()) => {}
        }
    }
}

/// What is read on a thread that may block.
type Counted = Result<(Pulse, Option<Worst>, Option<Room>), BrokenOff>;
type Counting = Pin<Box<dyn Future<Output = Counted> + Send>>;

fn count(shared: &Arc<Shared>) -> Counting {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let (broker, data) = (shared.broker.clone(), shared.live().config.store.data.clone());
        let work = move || (broker.pulse(), broker.consumers().take_worst(), machine::room(&data));
        shared.tasks.blocking(work).await
    })
}

/// Reads what is to be judged. What takes too long goes on, and no other is begun meanwhile.
async fn look(shared: &Arc<Shared>, counting: &mut Option<Counting>) -> Read {
    let under_way = counting.get_or_insert_with(|| count(shared));
    let (pulse, worst, room) = match timeout(ANSWER_TIMEOUT, under_way).await {
        Ok(counted) => {
            *counting = None;
            // Broken off only by a fault of ours, which has been reported.
            counted.map_or((None, None, None), |(pulse, worst, room)| (Some(pulse), worst, room))
        }
        Err(_late) => (None, None, None),
    };
    let after: Span = shared.live().config.alerts.undecided_after;
    let asked = shared.broker.transactions().undecided(after);
    let undecided = match timeout(ANSWER_TIMEOUT, asked).await {
        Ok(Ok(undecided)) => Some(undecided),
        Ok(Err(error)) => {
            debug!(%error, "it is not known which transactions are undecided");
            None
        }
        Err(_late) => None,
    };
    Read { pulse, worst, undecided, room, nodes: Seen::Unknown }
}

/// Who is missing in the cluster, where there is one.
fn nodes(shared: &Shared, roster: &mut Roster, now: Duration) -> Seen {
    match shared.nodes.view() {
        None => Seen::Nothing,
        Some(view) => roster.take(&view, |name| shared.nodes.has_left(name), now),
    }
}

fn tell(shared: &Shared, event: &Event) {
    let (rule, value, threshold) = (event.name(), event.value, event.threshold);
    let unit = event.rule.map_or("", |rule| rule.unit.word());
    let detail = event.detail.as_deref().unwrap_or_default();
    match event.word {
        "firing" => warn!(rule, value, threshold, unit, detail, "an alert is firing"),
        _ => info!(rule, value, threshold, unit, detail, "an alert is resolved"),
    }
    shared.alerts.webhook.put(event.notice(shared.nodes.told_name()));
}
