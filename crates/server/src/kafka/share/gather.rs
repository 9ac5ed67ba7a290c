//! Messages for a member: taken from all of its groups, waited for if there are none.
//!
//! No wake is lost: the group that has woken the wait is the first to be asked again, and asked
//! before there is any point at which the request could be dropped.

use futures_util::future::select_all;
use punctual_broker::group::Consumer;
use punctual_model::TopicId;
use punctual_model::limits::RECEIVE_MESSAGES_MAX;
use tokio::time::{Instant, timeout_at};

use super::heartbeat::of_open;
use crate::http::page::PAGE_BYTES_MAX;
use crate::kafka::call::Call;
use crate::kafka::refusal::Refusal;
use crate::receiving::{self, Taken, Wanted};
use crate::timings::Via;

/// How much a member asks for, and how long it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// Most messages.
    pub(super) max: usize,
    /// Most bytes of them, about.
    pub(super) bytes_max: usize,
    /// With fewer bytes it rather waits.
    pub(super) bytes_min: usize,
    pub(super) until: Instant,
    /// Which group is asked first; they take turns.
    pub(super) turn: usize,
}

/// What was taken. Unless it is sent it goes back.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) taken: Vec<(TopicId, Taken)>,
    count: usize,
    bytes: usize,
}

impl Gathered {
    fn add(&mut self, topic: TopicId, taken: Taken) {
        self.count += taken.messages().len();
        self.bytes += taken.messages().iter().map(|one| one.message.weight()).sum::<usize>();
        self.taken.push((topic, taken));
    }

    /// What may be added, if anything.
    fn wanted(&self, ask: &Ask, since: Instant) -> Option<Wanted> {
        let max = ask.max.min(RECEIVE_MESSAGES_MAX).saturating_sub(self.count);
        let bytes_max = ask.bytes_max.min(PAGE_BYTES_MAX).saturating_sub(self.bytes);
        let wanted = Wanted { max, bytes_max, lease: None, via: Via::Kafka, since };
        (max > 0 && bytes_max > 0).then_some(wanted)
    }

    fn is_enough(&self, ask: &Ask) -> bool {
        self.count > 0 && self.bytes >= ask.bytes_min
    }
}

/// Takes what there is, once it is enough or the time is over.
pub(super) async fn gather(
    call: &Call,
    groups: &[(TopicId, Consumer)],
    ask: &Ask,
) -> Result<Gathered, Refusal> {
    let mut gathered = Gathered::default();
    let mut turn = ask.turn;
    let mut since = Instant::now();
    loop {
        let available: Vec<_> = groups.iter().map(|(_, consumer)| consumer.available()).collect();
        for step in 0..groups.len() {
            let next = groups.get(turn.wrapping_add(step) % groups.len());
            let (Some((topic, consumer)), Some(wanted)) = (next, gathered.wanted(ask, since))
            else {
                return Ok(gathered);
            };
            match receiving::take(&call.shared.shared, consumer, wanted, |_| ()).await {
                Ok(Some((taken, ()))) => gathered.add(*topic, taken),
                Ok(None) => {}
                // What the others have given is worth more than the reason.
                Err(_later) if gathered.count > 0 => return Ok(gathered),
                Err(problem) => return Err(of_open(problem)),
            }
        }
        if gathered.is_enough(ask) || Instant::now() >= ask.until {
            return Ok(gathered);
        }
        if available.is_empty() {
            pause(ask.until).await;
            return Ok(gathered);
        }
        match timeout_at(ask.until, select_all(available)).await {
            Ok(((), woken, _others)) => (turn, since) = (woken, Instant::now()),
            Err(_time_is_over) => return Ok(gathered),
        }
    }
}

/// Waits, so that a member that can be given nothing does not ask again at once.
pub(super) async fn pause(until: Instant) {
    let _over = timeout_at(until, std::future::pending::<()>()).await;
}
