//! How the parts are put together; nowhere else are they.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_model::ports::StoreError;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::broker::Broker;
use crate::config::Config;
use crate::http::listener;
use crate::http::shared::Shared;
use crate::tasks::Tasks;

/// What a started server tells.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where HTTP is answered.
    pub http: SocketAddr,
    /// Where the data is.
    pub data: PathBuf,
}

/// Why a server ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address could not be taken.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The store could not be opened, or failed on the way.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Serves until `shutdown` ends, then finishes what is under way. `ready` is told once requests
/// are answered.
///
/// # Errors
/// [`ServeError`] when it cannot start, or when the store fails: then nothing more is acknowledged
/// and the process should end.
pub async fn serve(
    config: Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = config.http.listen;
    let taken = async { TcpListener::bind(address).await.and_then(|l| Ok((l.local_addr()?, l))) };
    let (http, socket) = taken.await.map_err(|error| ServeError::Listen { address, error })?;
    let tasks = Tasks::default();
    let broker = Broker::open(&config)?;
    let shared = Arc::new(Shared::new(broker.clone(), tasks.clone(), &config));
    tasks.spawn(listener::run(socket, Arc::clone(&shared)));
    info!(%http, data = %config.store.data.display(), "ready");
    // Nobody waiting for the news is fine.
    let _unheard = ready.send(Ready { http, data: config.store.data.clone() }).is_err();

    let outcome = tokio::select! {
        () = shutdown => Ok(()),
        error = broker.failed() => Err(ServeError::Store(error)),
    };
    if let Err(error) = &outcome {
        tracing::error!(%error, "the store failed; nothing more is acknowledged");
    }
    shared.stop_taking();
    if !tasks.stop(config.http.drain_timeout).await {
        warn!("requests still under way were broken off");
    }
    outcome
}
