//! Where due messages go, and what an outlet says of those that it did not take.

use std::future::Future;

use crate::message::{Key, Lane};
use crate::ports::{Armed, StoreError};
use crate::time::{Span, Timestamp};

/// Where due messages go.
pub trait Outlet: Send + Sync + 'static {
    /// Takes the batch, all of one lane, in order within each partition, at the time `now`. Answers
    /// what it did not take, in the order of the batch; what is not named there is taken for good.
    /// After an error the caller offers the same batch again; an outlet that had taken part of it,
    /// or still tries to, leaves that out. An error is for an outlet that takes nothing at all: what
    /// only some topics or partitions cannot take is [`Fate::Later`] or [`Fate::Open`].
    fn deliver(
        &self,
        batch: &[Armed],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Untaken>, StoreError>> + Send;

    /// What became of entries of a lane that were [`Fate::Open`], each told once.
    fn told(&self, _lane: Lane) -> Vec<Told> {
        Vec::new()
    }
}

/// An entry of a batch that an outlet has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untaken {
    /// Its place in the batch.
    pub index: usize,
    /// What is to become of it.
    pub fate: Fate,
}

/// What is to become of an entry that an outlet has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was not taken, and is to be offered again no sooner than after this long.
    Later(Span),
    /// It may have been taken; [`Outlet::told`] will tell. It must not be offered again before.
    Open,
}

/// What became of an entry that was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The key with which it was offered.
    pub key: Key,
    /// `None` when it was taken; otherwise it was not, and is to be offered again after this long.
    pub later: Option<Span>,
}
