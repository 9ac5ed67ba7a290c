//! Asks producers by their URL what became of a transaction.
//!
//! A check is counted once it is taken, so it is taken only when it can be sent at once. Whatever an
//! endpoint does, the question is over within its time-out; any answer but a clear decision means
//! that nobody knows yet, and the next check follows in its time.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use punctual_api::transaction::Decision;
use punctual_broker::transaction::{Callback, CallbackAnswer, DecideError};
use punctual_model::Clock;
use punctual_model::limits::JSON_DEPTH_MAX;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::app::Broker;
use crate::push::client::Client;
use crate::push::connect::Connector;
use crate::push::request;
use crate::push::sign::Signer;
use crate::shown::check_view;
use crate::tasks::Tasks;

/// Questions under way at once.
const PLACES: usize = 32;
/// How long an endpoint may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the store refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Asks for all transactions that have a URL.
pub(crate) struct Asking {
    pub(crate) broker: Broker,
    pub(crate) connector: Arc<Connector>,
    pub(crate) signer: Option<Signer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Tasks,
}

impl Asking {
    /// Asks until the tasks are asked to stop.
    pub(crate) fn start(self) {
        let asking = Arc::new(self);
        let tasks = asking.tasks.clone();
        tasks.spawn(asking.run());
    }

    async fn run(self: Arc<Self>) {
        let places = Arc::new(Semaphore::new(PLACES));
        let desk = self.broker.transactions();
        loop {
            let place = tokio::select! {
                () = self.tasks.stopped() => return,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let place = place.expect("the places are never closed");
            let available = desk.callback_available();
            match desk.take_callbacks(1).await.map(|mut taken| taken.pop()) {
                Ok(Some(callback)) => {
                    let asking = Arc::clone(&self);
                    self.tasks.spawn(async move {
                        asking.settle(callback).await;
                        drop(place);
                    });
                }
                Ok(None) => {
                    drop(place);
                    tokio::select! {
                        () = self.tasks.stopped() => return,
                        () = available => {}
                    }
                }
                Err(error) => {
                    warn!(%error, "checks of transactions could not be taken");
                    // Stopped meanwhile or not: the loop looks.
                    let _stopped = tokio::time::timeout(REFUSED_PAUSE, self.tasks.stopped()).await;
                }
            }
        }
    }

    /// Asks, and does what the answer says.
    async fn settle(&self, callback: Callback) {
        let id = callback.check.transaction;
        let answer = tokio::select! {
            answer = self.ask(&callback) => answer,
            // After a restart the next check asks again.
            () = self.tasks.stopped() => return,
        };
        let answer = answer.unwrap_or_else(|error| {
            debug!(transaction = %id, error, "nobody knows what became of a transaction");
            CallbackAnswer::Unknown
        });
        match self.broker.transactions().callback_answered(id, answer).await {
            // Somebody else was faster.
            Ok(()) | Err(DecideError::NotFound | DecideError::AlreadyDecided(_)) => {}
            Err(DecideError::Store(error)) => {
                warn!(transaction = %id, %error, "a decision could not be stored; it is asked for again");
            }
        }
    }

    async fn ask(&self, callback: &Callback) -> Result<CallbackAnswer, String> {
        let endpoint = self.connector.endpoint(&callback.url);
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let view = check_view(&callback.check, Some(&callback.producer_group));
        let body = serde_json::to_vec(&view).expect("our own shapes have no faults");
        let now = self.clock.read().timestamp();
        let signer = self.signer.as_ref();
        let request = request::json(&endpoint, (&view.transaction, body), signer, now);
        let request = request.map_err(|error| error.to_string())?;
        let client = Client::new(Arc::clone(&self.connector), endpoint, TIMEOUT);
        let answer = client.send(request).await.map_err(|error| error.to_string())?;
        if answer.status != StatusCode::OK || !answer.whole {
            return Err(format!("the endpoint answered {}", answer.status));
        }
        let decision = Decision::read(&answer.excerpt, JSON_DEPTH_MAX);
        match decision.map_err(|problem| problem.detail.into_owned())? {
            Decision::Commit => Ok(CallbackAnswer::Committed),
            Decision::Rollback => Ok(CallbackAnswer::RolledBack),
            Decision::Unknown => Ok(CallbackAnswer::Unknown),
        }
    }
}
