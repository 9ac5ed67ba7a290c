//! Tells an address of alerts: one after the other, each a few times if it has to be.
//!
//! Whoever has something to tell never waits: news goes into a queue of bounded length, and what
//! finds no room is dropped with a line in the log. The address is reached by the guarded way of
//! pushes, and neither it nor the secret is ever shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_api::alert::{NoticeView, ReachedView, WebhookView};
use punctual_model::Timestamp;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::live::Live;
use crate::push::{Connector, Notice, Secret, Unsent, send_notice};
use crate::tasks::Tasks;

/// News that waits to be sent.
const QUEUE_MAX: usize = 256;
/// How long is waited before each further attempt.
const WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];

/// What time it is.
pub(crate) type Now = Box<dyn Fn() -> Timestamp + Send + Sync>;

/// Tells an address.
pub(crate) struct Webhook {
    live: Live,
    connector: Arc<Connector>,
    now: Now,
    queue: mpsc::Sender<NoticeView>,
    waiting: Mutex<Option<mpsc::Receiver<NoticeView>>>,
    last: Mutex<Option<Reached>>,
    /// So that no two have the same id.
    count: AtomicU64,
}

/// How an attempt went.
#[derive(Clone, Debug)]
struct Reached {
    at: Timestamp,
    error: Option<String>,
}

/// What came of telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// There is nobody to tell.
    Nobody,
    Taken,
    Failed(Unsent),
}

impl Webhook {
    pub(crate) fn new(live: Live, connector: Arc<Connector>, now: Now) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let (waiting, last) = (Mutex::new(Some(waiting)), Mutex::default());
        Self { live, connector, now, queue, waiting, last, count: AtomicU64::new(0) }
    }

    /// The address as it is shown: not at all.
    pub(crate) fn view(&self) -> WebhookView {
        let last = self.last.lock().clone();
        WebhookView {
            configured: self.live.read().config.alerts.webhook.is_some(),
            last: last.map(|reached| ReachedView {
                at: reached.at.to_string(),
                ok: reached.error.is_none(),
                error: reached.error,
            }),
        }
    }

    /// Tells it some time; never waits.
    pub(crate) fn put(&self, news: NoticeView) {
        if self.live.read().config.alerts.webhook.is_none() {
            return;
        }
        let (rule, event) = (news.rule, news.event);
        if self.queue.try_send(news).is_err() {
            warn!(rule, event, "too much waits for the webhook of alerts; it is not told");
        }
    }

    /// Tells it now, once.
    pub(crate) async fn tell(&self, news: &NoticeView) -> Told {
        self.send(&self.notice(news)).await
    }

    /// Sends what waits until the tasks are asked to stop.
    pub(crate) async fn run(&self, tasks: &Tasks) {
        let Some(mut waiting) = self.waiting.lock().take() else { return };
        loop {
            let news = tokio::select! {
                () = tasks.stopped() => return,
                news = waiting.recv() => news,
            };
            let Some(news) = news else { return };
            tokio::select! {
                // After a restart a rule that is still broken fires again.
                () = tasks.stopped() => return,
                () = self.deliver(&news) => {}
            }
        }
    }

    /// Sends it, a few times if it has to be.
    async fn deliver(&self, news: &NoticeView) {
        let notice = self.notice(news);
        let (rule, event) = (news.rule, news.event);
        let mut waits = WAITS.into_iter();
        loop {
            let Told::Failed(Unsent { error, for_good }) = self.send(&notice).await else { return };
            match waits.next().filter(|_| !for_good) {
                Some(wait) => {
                    debug!(rule, event, %error, "the webhook of alerts is tried again");
                    pause(wait).await;
                }
                None => {
                    warn!(rule, event, %error, "the webhook of alerts was not told");
                    return;
                }
            }
        }
    }

    fn notice(&self, news: &NoticeView) -> Notice {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let millis = (self.now)().as_millis();
        Notice {
            id: format!("alert-{millis}-{number}"),
            body: serde_json::to_vec(news).expect("our own shapes have no faults"),
        }
    }

    async fn send(&self, notice: &Notice) -> Told {
        let (url, signer) = {
            let current = self.live.read();
            let config = &current.config.alerts;
            let Some(url) = &config.webhook else { return Told::Nobody };
            (url.clone(), config.webhook_secret.as_ref().map(Secret::signer))
        };
        let now = (self.now)();
        let sent = send_notice(&self.connector, url.text(), signer.as_ref(), notice, now).await;
        let error = sent.as_ref().err().map(|unsent| unsent.error.clone());
        *self.last.lock() = Some(Reached { at: (self.now)(), error });
        sent.map_or_else(Told::Failed, |()| Told::Taken)
    }
}

async fn pause(time: Duration) {
    let _always_late = tokio::time::timeout(time, std::future::pending::<()>()).await.is_err();
}
