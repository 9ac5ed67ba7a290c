//! Opens what a crash left behind and holds it against the worlds it may be: that of everything
//! answered, or that and the beginning of what was being asked.

use punctual_engine::Options;
use punctual_engine::store::Store;
use punctual_model::ports::{ArmLimit, Armed, Done, OnConflict, Order, Revised};
use punctual_model::{Action, Basis, Entry, Lane, Message, OwnId, Partition, Timestamp};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::runner::{LATE_MS, revise};
use super::shown::Shown;
use super::world::{Effect, Event, World};
use crate::store_support::ledger::{During, Phase};
use crate::store_support::{at, open};

/// What was asked and answered, and the settings it was done with.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// What there was at the beginning.
    pub base: World,
    /// What was asked, in order.
    pub events: Vec<(During, Event)>,
    /// The settings.
    pub options: Options,
}

impl Past {
    /// What may be there after that many operations of the disk: whatever was answered, and the
    /// beginning of what was being asked.
    pub fn worlds(&self, ops: u64) -> Vec<World> {
        let mut worlds = vec![self.base.clone()];
        for (during, event) in &self.events {
            match during.phase(ops) {
                Phase::Done => worlds.iter_mut().for_each(|world| world.take(event)),
                Phase::Before => break,
                Phase::Open => {
                    let mut further = worlds[worlds.len() - 1].clone();
                    further.take(event);
                    worlds.push(further);
                }
            }
        }
        worlds
    }

    /// Starts on `image`, which is what was left after that many operations, and holds it against
    /// what may be there, before and after everything is delivered.
    pub fn examine(&self, image: &ForgetfulDisk, ops: u64) -> Result<Vec<World>, String> {
        self.examine_as(image, self.worlds(ops))
    }

    /// As [`examine`](Self::examine), and starts once more.
    pub fn examine_twice(&self, image: &ForgetfulDisk, ops: u64) -> Result<(), String> {
        let worlds = self.examine(image, ops)?;
        self.examine_as(&image.reopen(), worlds)
            .map(drop)
            .map_err(|what| format!("after another start: {what}"))
    }

    /// As [`examine`](Self::examine), where only these worlds may be. Answers what they are in the
    /// end.
    pub fn examine_as(
        &self,
        image: &ForgetfulDisk,
        worlds: Vec<World>,
    ) -> Result<Vec<World>, String> {
        let store = self.start(image)?;
        judge(&store, worlds).map(|(_, after)| after)
    }

    /// As [`examine`](Self::examine), and writes a checkpoint. Answers what it turned out to be
    /// from the start until everything was delivered, and after how many operations the start was
    /// complete.
    pub fn recover(&self, image: &ForgetfulDisk, ops: u64) -> Result<(Vec<World>, u64), String> {
        let store = self.start(image)?;
        let started = image.ops();
        let (until_then, _) = judge(&store, self.worlds(ops))?;
        store.checkpoint(at(LATE_MS)).map_err(|error| format!("checkpoint: {error}"))?;
        Ok((until_then, started))
    }

    pub fn start(&self, image: &ForgetfulDisk) -> Result<Store, String> {
        open(image, &self.options).map_err(|error| format!("does not start: {error}"))
    }
}

/// The worlds that the store may be until everything was delivered, and those that it may be then.
fn judge(store: &Store, worlds: Vec<World>) -> Result<(Vec<World>, Vec<World>), String> {
    let worlds = fitting(store, worlds)?;
    for world in &worlds {
        repeat_names(store, world)?;
    }
    let mut until_then = worlds.clone();
    let mut after = worlds;
    for effect in drain(store)? {
        let event = Event::Revised(vec![effect]);
        after.iter_mut().for_each(|world| world.take(&event));
        until_then.extend(after.iter().cloned());
    }
    let after =
        fitting(store, after).map_err(|what| format!("after everything was delivered: {what}"))?;
    let shown = Shown::by(store)?;
    for world in &after {
        if let Some(entry) = world.deliverable().find(|entry| !shown.logged.contains_key(&entry.id))
        {
            return Err(format!("{} was never delivered: {entry:?}", entry.id));
        }
    }
    Ok((until_then, after))
}

/// The worlds that the store may be showing.
pub fn fitting(store: &Store, worlds: Vec<World>) -> Result<Vec<World>, String> {
    let shown = Shown::by(store)?;
    let mut reasons = Vec::new();
    let fits = |world: &World| match shown.compare(store, world) {
        Ok(()) => true,
        Err(reason) => {
            reasons.push(reason);
            false
        }
    };
    let fitting: Vec<World> = worlds.into_iter().filter(fits).collect();
    if fitting.is_empty() { Err(reasons.join("; or else ")) } else { Ok(fitting) }
}

/// A request that comes again is told the first answer, and another one is refused.
fn repeat_names(store: &Store, world: &World) -> Result<(), String> {
    for ((topic, text), (id, print)) in world.names.iter().take(4) {
        for (print, again) in [(*print, true), (print + 1000, false)] {
            let entry = Entry {
                topic: *topic,
                partition: Partition::new(0).unwrap(),
                due: Timestamp::MIN,
                basis: Basis::Date,
                message: Message::default(),
                extra: None,
            };
            let own = OwnId { text: text.clone(), print };
            let order = Order::Schedule {
                lane: Lane::Message,
                entry: entry.with_extra(|extra| extra.own_id = Some(own)),
                conflict: OnConflict::Reject,
            };
            let answer =
                revise(store, &[order], at(LATE_MS)).map_err(|error| format!("name: {error}"))?;
            let known = answer == Revised::Done(vec![Done::Known(*id)]);
            let refused = matches!(answer, Revised::Refused { .. });
            if known != again || refused == again {
                return Err(format!("{text}, which {id} has, is answered with {answer:?}"));
            }
        }
    }
    Ok(())
}

const MANY: ArmLimit = ArmLimit { entries: 40, bytes: 1 << 20 };

/// Delivers everything that is ever due. Series and transactions are withdrawn, one by one.
fn drain(store: &Store) -> Result<Vec<Effect>, String> {
    let mut effects = Vec::new();
    for lane in Lane::ALL {
        loop {
            let told = |error| format!("drain: {error}");
            let batch = store.arm(lane, Timestamp::PREPARED, MANY).map_err(told)?;
            if batch.is_empty() {
                break;
            }
            let (mut messages, control): (Vec<Armed>, Vec<Armed>) =
                batch.into_iter().partition(|armed| armed.action() == Action::Deliver);
            for armed in &control {
                let order = Order::Cancel { id: armed.id(), expected: Some(armed.key) };
                let answer = revise(store, &[order], at(LATE_MS)).map_err(told)?;
                if answer != Revised::Done(vec![Done::Cancelled]) {
                    return Err(format!("{} is armed and not there: {answer:?}", armed.id()));
                }
                effects.push(Effect::Cancelled(armed.id()));
            }
            store.release(&control);
            store.claim(&mut messages).map_err(told)?;
            store.deliver(&messages, Timestamp::MAX).map_err(told)?;
            store.settle(&messages).unwrap();
        }
    }
    Ok(effects)
}
