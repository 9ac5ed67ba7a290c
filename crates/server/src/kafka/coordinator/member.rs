//! One member of a group.

use std::sync::Arc;

use bytes::Bytes;
use punctual_broker::wheel;
use punctual_model::Span;

use super::terms::{Joining, MemberShown, Peer, Protocol, Ticket};

/// A member. While one of its calls waits its session does not run: the connection stands for it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: Arc<str>,
    pub(super) instance: Option<Arc<str>>,
    /// Smaller for those who came first.
    pub(super) order: u64,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) session: Span,
    pub(super) rebalance: Span,
    pub(super) protocols: Vec<Protocol>,
    /// What it was given.
    pub(super) share: Bytes,
    /// Whether it has asked for its share of this generation.
    pub(super) synced: bool,
    /// Its join that waits.
    pub(super) join: Option<Ticket>,
    /// Its sync that waits.
    pub(super) sync: Option<Ticket>,
    /// The end of its session.
    pub(super) alarm: Option<wheel::Ticket>,
}

impl Member {
    /// A new member.
    pub(super) fn new(id: Arc<str>, order: u64, joining: Joining) -> Self {
        Self {
            id,
            instance: joining.instance,
            order,
            client_id: joining.client_id,
            client_host: joining.client_host,
            session: joining.session,
            rebalance: joining.rebalance,
            protocols: joining.protocols,
            share: Bytes::new(),
            synced: false,
            join: None,
            sync: None,
            alarm: None,
        }
    }

    /// Takes over what it says now.
    pub(super) fn update(&mut self, joining: Joining) {
        self.client_id = joining.client_id;
        self.client_host = joining.client_host;
        self.session = joining.session;
        self.rebalance = joining.rebalance;
        self.protocols = joining.protocols;
    }

    /// Whether it knows that way to share.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.protocols.iter().any(|protocol| &*protocol.name == name)
    }

    /// What it has to say for that way to share.
    pub(super) fn metadata(&self, name: &str) -> Bytes {
        let said = self.protocols.iter().find(|protocol| &*protocol.name == name);
        said.map(|protocol| protocol.metadata.clone()).unwrap_or_default()
    }

    /// What it takes of memory, about.
    pub(super) fn weight(&self) -> usize {
        let texts = [Some(&self.id), self.instance.as_ref(), Some(&self.client_id)];
        let texts: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        size_of::<Self>() + texts + weight(&self.protocols) + self.share.len()
    }

    /// The member as the leader sees it.
    pub(super) fn peer(&self, protocol: &str) -> Peer {
        Peer {
            member: Arc::clone(&self.id),
            instance: self.instance.clone(),
            metadata: self.metadata(protocol),
        }
    }

    /// The member as it is shown; what it was given once that is known.
    pub(super) fn shown(&self, protocol: Option<&str>) -> MemberShown {
        MemberShown {
            member: Arc::clone(&self.id),
            instance: self.instance.clone(),
            client_id: Arc::clone(&self.client_id),
            client_host: Arc::clone(&self.client_host),
            metadata: protocol.map(|name| self.metadata(name)).unwrap_or_default(),
            share: protocol.map(|_| self.share.clone()).unwrap_or_default(),
        }
    }
}

/// What protocols take of memory, about.
pub(super) fn weight(protocols: &[Protocol]) -> usize {
    protocols.iter().map(Protocol::weight).sum()
}
