//! An outlet whose topics can be made to refuse messages or to keep silent, or that is down as a
//! whole.
//!
//! It holds its caller to the seam: what it has taken, or has not answered for yet, must not be
//! offered again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use punctual_model::ports::{Armed, Fate, Outlet, StoreError, Told, Untaken};
use punctual_model::{Key, Lane, MessageId, Span, Timestamp, TopicId};

/// How a topic takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// All of them.
    #[default]
    Takes,
    /// None for so long.
    Refuses(Span),
    /// It does not say.
    Silent,
}

/// An outlet that remembers what it was given.
#[derive(Debug, Default)]
pub struct Moody {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    down: bool,
    moods: BTreeMap<TopicId, Mood>,
    taken: Vec<MessageId>,
    /// Offered and not answered for.
    open: BTreeMap<Key, Armed>,
    told: Vec<Told>,
    /// How often a batch was offered.
    offers: usize,
    known: BTreeSet<Key>,
}

impl Moody {
    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().expect("whoever holds it does not panic"))
    }

    /// From now on a topic is so.
    pub fn set(&self, topic: TopicId, mood: Mood) {
        self.with(|state| state.moods.insert(topic, mood));
    }

    /// From now on the whole outlet is down, or not.
    pub fn set_down(&self, down: bool) {
        self.with(|state| state.down = down);
    }

    /// Says of everything that is open whether it was taken, or after how long it is to come again.
    pub fn answer(&self, later: Option<Span>) {
        self.with(|state| {
            for (key, armed) in std::mem::take(&mut state.open) {
                if later.is_none() {
                    state.taken.push(armed.id());
                    state.known.insert(key);
                }
                state.told.push(Told { key, later });
            }
        });
    }

    /// What was taken, in order.
    pub fn taken(&self) -> Vec<MessageId> {
        self.with(|state| state.taken.clone())
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.with(|state| state.open.len())
    }

    /// How often a batch was offered.
    pub fn offers(&self) -> usize {
        self.with(|state| state.offers)
    }
}

impl Outlet for Moody {
    async fn deliver(&self, batch: &[Armed], _now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        self.with(|state| {
            state.offers += 1;
            for armed in batch {
                assert!(!state.known.contains(&armed.key), "{} was taken before", armed.id());
                assert!(!state.open.contains_key(&armed.key), "{} is still open", armed.id());
            }
            if state.down {
                return Err(StoreError::Unavailable("told to be down".into()));
            }
            let mut untaken = Vec::new();
            for (index, armed) in batch.iter().enumerate() {
                match state.moods.get(&armed.topic).copied().unwrap_or_default() {
                    Mood::Takes => {
                        state.taken.push(armed.id());
                        state.known.insert(armed.key);
                    }
                    Mood::Refuses(wait) => untaken.push(Untaken { index, fate: Fate::Later(wait) }),
                    Mood::Silent => {
                        state.open.insert(armed.key, armed.clone());
                        untaken.push(Untaken { index, fate: Fate::Open });
                    }
                }
            }
            Ok(untaken)
        })
    }

    fn told(&self, lane: Lane) -> Vec<Told> {
        self.with(|state| {
            let here = |told: &mut Told| told.key.sequence.lane() == lane;
            state.told.extract_if(.., here).collect()
        })
    }
}
