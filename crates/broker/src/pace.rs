//! What is due does not always fire: a paused topic, a rate cap or the catching up after a time in
//! which the broker was down may hold a message back.
//!
//! Decisions only; `fire` delivers what comes out of here and `moves` carries out what has to be
//! written down. Nothing that is held back was claimed, so it can be cancelled and changed. Memory
//! is bounded: what finds no room is sent back to the timeline, due when its turn comes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::ports::Armed;
use punctual_model::{CatchUp, Timestamp, TopicId};

use crate::catch_up::{self, CatchingUp, Fate, Waiting};
use crate::moves::{Change, Move};
use crate::rate::Line;
use crate::rules::{Rule, Rules, Snapshot};
use crate::time::Now;

/// Messages of one topic that wait for their turn in memory, and their bytes.
const LINE_MAX: usize = 8192;
const LINE_BYTES_MAX: usize = 8 << 20;
/// The same for all topics together.
const ALL_MAX: usize = 65_536;
const ALL_BYTES_MAX: usize = 64 << 20;

/// Is told of a topic whose pause has ended.
pub(crate) type Resumed = Arc<dyn Fn(TopicId) + Send + Sync>;

/// Decides which due messages fire now.
pub(crate) struct Pace {
    rules: Arc<Rules>,
    edition: Option<u64>,
    current: Snapshot,
    resumed: Resumed,
    catching_up: Option<CatchingUp>,
    /// Messages that are spread after a time in which the broker was down.
    spread: Waiting,
    lines: BTreeMap<TopicId, Line>,
    /// The lines in which somebody waits.
    busy: BTreeSet<TopicId>,
    /// Messages in all lines, and their bytes.
    held: (usize, usize),
    /// They need not wait any more, since the settings of their topic have changed.
    freed: Vec<Armed>,
    /// What has to be written down.
    pub(crate) moves: Vec<Move>,
}

impl Pace {
    /// What was due before `now` was missed.
    pub(crate) fn new(rules: Arc<Rules>, now: Now, resumed: Resumed) -> Self {
        Self {
            rules,
            edition: None,
            current: Snapshot::default(),
            resumed,
            catching_up: Some(CatchingUp::new(now.timestamp())),
            spread: Waiting::default(),
            lines: BTreeMap::new(),
            busy: BTreeSet::new(),
            held: (0, 0),
            freed: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// The machine was asleep until now: what was due before was missed.
    pub(crate) fn wake_up(&mut self, now: Now) {
        self.catching_up.get_or_insert_with(|| CatchingUp::new(now.timestamp()));
    }

    /// Whether it is still being read what was missed; then the first time that was not.
    pub(crate) fn missing_before(&self) -> Option<Timestamp> {
        self.catching_up.as_ref().map(|catching_up| catching_up.start)
    }

    /// Takes note of changed settings. Answers the topics of which it must be
    /// [`count`](Self::count)ed how many messages were missed, before it can be decided about `due`.
    pub(crate) fn prepare(&mut self, due: &[Armed], now: Now) -> BTreeSet<TopicId> {
        self.follow_rules(now);
        let Some(catching_up) = &self.catching_up else { return BTreeSet::new() };
        // In order of due times, so that what was missed comes first.
        let missed = due.iter().take_while(|armed| catching_up.missed(armed));
        let spread = missed.filter(|armed| {
            matches!(self.policy(armed), CatchUp::Spread(_))
                && catching_up.is_uncounted(armed.topic)
        });
        spread.map(|armed| armed.topic).collect()
    }

    /// So many messages of the topic were missed, about.
    pub(crate) fn count(&mut self, topic: TopicId, missed: u64) {
        if let Some(catching_up) = &mut self.catching_up {
            catching_up.count(topic, missed);
        }
    }

    /// Answers what fires now of what is due, given in order, and of what was held back.
    pub(crate) fn sort_out(&mut self, due: Vec<Armed>, now: Now) -> Vec<Armed> {
        let mut fires = std::mem::take(&mut self.freed);
        if self.is_plain(&due) {
            if fires.is_empty() {
                return due;
            }
            fires.extend(due);
            return fires;
        }
        fires.reserve(due.len());
        let mut fates = Vec::new();
        for armed in due {
            let rule = self.rule(armed.topic);
            let missed = self.catching_up.as_mut().filter(|catching_up| catching_up.missed(&armed));
            match missed {
                Some(catching_up) if !rule.paused => {
                    let policy = catch_up::asked(&armed.message).unwrap_or(rule.catch_up);
                    catching_up.decide(armed, policy, &mut fates);
                    fates.drain(..).for_each(|fate| self.meet(fate, now, &mut fires));
                }
                _ => self.fire(armed, rule, now, &mut fires),
            }
        }
        self.take_turns(now, &mut fires);
        fires
    }

    /// Everything missed was read. Answers what was held back until then.
    pub(crate) fn end_catching_up(&mut self) -> Vec<Armed> {
        self.catching_up.take().map(CatchingUp::end).unwrap_or_default()
    }

    /// Answers what fires now of what was held back.
    pub(crate) fn let_go(&mut self, held: Vec<Armed>, now: Now) -> Vec<Armed> {
        let mut fires = Vec::new();
        for armed in held {
            let rule = self.rule(armed.topic);
            self.fire(armed, rule, now, &mut fires);
        }
        if !self.busy.is_empty() {
            self.take_turns(now, &mut fires);
        }
        fires
    }

    /// When something that is held back may fire, on the broker clock.
    pub(crate) fn next_turn(&self, now: Now) -> Option<Duration> {
        let lines = self.busy.iter().filter_map(|topic| self.lines.get(topic)?.next_turn(now));
        lines.chain(self.spread.next_turn()).min()
    }

    /// When the oldest message was due that is held back in memory, about.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let lines = self.busy.iter().filter_map(|topic| self.lines.get(topic)?.oldest());
        lines.chain(self.spread.next_due()).min()
    }

    /// Messages that are held back in memory, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let spread = self.spread.size();
        (self.held.0 + spread.0, self.held.1 + spread.1)
    }

    /// Whether everything of `due` fires, and nothing else.
    fn is_plain(&self, due: &[Armed]) -> bool {
        let missed = self.catching_up.as_ref().is_some_and(|catching_up| {
            let mut missed = due.iter().take_while(|armed| catching_up.missed(armed));
            missed.any(|armed| !armed.message.headers.is_empty())
        });
        !missed && self.current.is_empty() && self.size().0 == 0
    }

    fn rule(&self, topic: TopicId) -> Rule {
        if self.current.is_empty() {
            return Rule::default();
        }
        self.current.get(&topic).copied().unwrap_or_default()
    }

    fn policy(&self, armed: &Armed) -> CatchUp {
        catch_up::asked(&armed.message).unwrap_or_else(|| self.rule(armed.topic).catch_up)
    }

    fn meet(&mut self, fate: Fate, now: Now, fires: &mut Vec<Armed>) {
        match fate {
            Fate::Fires(armed) => {
                let rule = self.rule(armed.topic);
                self.fire(armed, rule, now, fires);
            }
            Fate::Waits(armed, turn) if turn <= now.timestamp() => {
                let rule = self.rule(armed.topic);
                self.fire(armed, rule, now, fires);
            }
            Fate::Waits(armed, turn) => {
                let (messages, bytes) = self.size();
                if messages < ALL_MAX && bytes + armed.message.weight() <= ALL_BYTES_MAX {
                    self.spread.join(armed, turn);
                } else {
                    self.moves.push(Move { armed, change: Change::Later(turn) });
                }
            }
            Fate::Skipped(armed) => self.moves.push(Move { armed, change: Change::Skip }),
        }
    }

    /// It is a message's moment, unless the topic is paused or there is a line.
    fn fire(&mut self, armed: Armed, rule: Rule, now: Now, fires: &mut Vec<Armed>) {
        if rule.paused {
            self.moves.push(Move { armed, change: Change::Park });
        } else if let Some(rate) = rule.rate_cap {
            let line = self.lines.entry(armed.topic).or_insert_with(|| Line::new(rate, now));
            self.busy.insert(armed.topic);
            let before = line.size();
            line.join(armed);
            self.held = resized(self.held, before, line.size());
        } else {
            fires.push(armed);
        }
    }

    /// Lets those fire whose turn has come, and sends away those for whom there is no room.
    fn take_turns(&mut self, now: Now, fires: &mut Vec<Armed>) {
        while let Some(armed) = self.spread.next(now) {
            let rule = self.rule(armed.topic);
            self.fire(armed, rule, now, fires);
        }
        let mut idle = Vec::new();
        for topic in &self.busy {
            let Some(line) = self.lines.get_mut(topic) else { continue };
            let before = line.size();
            while let Some(armed) = line.next(now) {
                fires.push(armed);
            }
            let after = line.size();
            self.held = resized(self.held, before, after);
            let over =
                (self.held.0.saturating_sub(ALL_MAX), self.held.1.saturating_sub(ALL_BYTES_MAX));
            let messages = LINE_MAX.min(after.0.saturating_sub(over.0));
            let bytes = LINE_BYTES_MAX.min(after.1.saturating_sub(over.1));
            let sent = line.shed(messages, bytes, now);
            self.held = resized(self.held, after, line.size());
            self.moves.extend(
                sent.into_iter().map(|(armed, due)| Move { armed, change: Change::Later(due) }),
            );
            if line.size().0 == 0 {
                idle.push(*topic);
            }
        }
        for topic in idle {
            self.busy.remove(&topic);
        }
    }

    /// Takes note of changed settings.
    fn follow_rules(&mut self, now: Now) {
        let Some(fresh) = self.rules.newer(&mut self.edition) else { return };
        let before = std::mem::replace(&mut self.current, fresh);
        for (topic, rule) in &*before {
            if rule.paused && !self.rule(*topic).paused {
                (self.resumed)(*topic);
            }
        }
        let topics: Vec<TopicId> = self.lines.keys().copied().collect();
        for topic in topics {
            let rule = self.rule(topic);
            let Some(line) = self.lines.get_mut(&topic) else { continue };
            match rule {
                Rule { rate_cap: Some(rate), paused: false, .. } => line.set_rate(rate, now),
                _ => {
                    let before = line.size();
                    let waiting = line.clear();
                    self.held = resized(self.held, before, (0, 0));
                    self.lines.remove(&topic);
                    self.busy.remove(&topic);
                    let uncapped = Rule { rate_cap: None, ..rule };
                    let mut freed = std::mem::take(&mut self.freed);
                    waiting
                        .into_iter()
                        .for_each(|armed| self.fire(armed, uncapped, now, &mut freed));
                    self.freed = freed;
                }
            }
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("held", &self.size()).finish_non_exhaustive()
    }
}

/// A sum of sizes after one of them has changed.
fn resized(sum: (usize, usize), before: (usize, usize), after: (usize, usize)) -> (usize, usize) {
    (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1)
}

#[cfg(test)]
mod tests;
