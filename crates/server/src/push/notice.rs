//! Sends one piece of news to an address, once: signed JSON, by the same guarded way as pushes.

use std::sync::Arc;
use std::time::Duration;

use punctual_model::Timestamp;

use crate::push::client::{Client, SendError};
use crate::push::connect::{ConnectError, Connector};
use crate::push::request;
use crate::push::sign::Signer;
use crate::push::verdict::{Verdict, judge};

/// How long the address may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// The same for each attempt.
    pub(crate) id: String,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

/// Why it did not arrive. The text names no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) error: String,
    /// Whether another attempt would end the same way.
    pub(crate) for_good: bool,
}

/// Sends it; `Ok` means that the address has taken it.
pub(crate) async fn send(
    connector: &Arc<Connector>,
    url: &str,
    signer: Option<&Signer>,
    notice: &Notice,
    now: Timestamp,
) -> Result<(), Unsent> {
    let never = |error: String| Unsent { error, for_good: true };
    let endpoint = connector.endpoint(url).map_err(|refused| never(refused.to_string()))?;
    let request = request::json(&endpoint, (&notice.id, notice.body.clone()), signer, now);
    let request = request.map_err(|error| never(error.to_string()))?;
    let outcome = Client::new(Arc::clone(connector), endpoint, TIMEOUT).send(request).await;
    let for_good = matches!(outcome, Err(SendError::Connect(ConnectError::Refused(_))));
    match judge(&outcome, now) {
        Verdict::Done => Ok(()),
        Verdict::Failed { error, .. } => Err(Unsent { error, for_good }),
    }
}
