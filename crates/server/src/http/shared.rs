//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_model::Span;
use tokio::sync::Semaphore;

use crate::app::{Broker, StoreFigures};
use crate::audit::AuditRecord;
use crate::config::{Config, HttpConfig};
use crate::http::origin::Hosts;
use crate::http::page::PAGE_BYTES_MAX;
use crate::http::routes::Router;
use crate::push::{Allowed, Figures};
use crate::tasks::Tasks;

/// Exports and imports under way at one time.
const TRANSFERS_MAX: usize = 4;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) store_figures: Box<dyn Fn() -> StoreFigures + Send + Sync>,
    pub(crate) pushed: Arc<Figures>,
    pub(crate) tasks: Tasks,
    pub(crate) http: HttpConfig,
    pub(crate) body_bytes_max: usize,
    /// Longest delay.
    pub(crate) delay_max: Span,
    /// Who changed what.
    pub(crate) audit: Arc<AuditRecord>,
    /// Where messages may be pushed to.
    pub(crate) push_allowed: Allowed,
    pub(crate) hosts: Hosts,
    pub(crate) router: Router,
    /// Bytes of requests that may still be taken in; what is held is given back with the answer.
    pub(crate) held: Arc<Semaphore>,
    /// How many may read whole pages of messages at one time.
    pub(crate) pages: Semaphore,
    /// How many exports and imports may be under way.
    pub(crate) transfers: Arc<Semaphore>,
    taking: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        broker: Broker,
        store_figures: Box<dyn Fn() -> StoreFigures + Send + Sync>,
        pushed: Arc<Figures>,
        tasks: Tasks,
        (config, audit): (&Config, Arc<AuditRecord>),
    ) -> Self {
        Self {
            broker,
            store_figures,
            pushed,
            tasks,
            hosts: Hosts::new(config.http.listen, &config.http.hosts),
            held: Arc::new(Semaphore::new(config.http.held_bytes_max)),
            // Half as much again as may be held.
            pages: Semaphore::new((config.http.held_bytes_max / PAGE_BYTES_MAX / 2).max(1)),
            http: config.http.clone(),
            body_bytes_max: config.limits.body_bytes_max,
            delay_max: config.limits.delay_max,
            audit,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            push_allowed: config.push.allow.clone(),
            router: Router::new(),
            taking: AtomicBool::new(true),
        }
    }

    /// From now on the server calls itself not ready.
    pub(crate) fn stop_taking(&self) {
        self.taking.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_taking(&self) -> bool {
        self.taking.load(Ordering::Relaxed)
    }
}
