//! What waits to be committed, in a line for each lane.
//!
//! The lines share each group fairly, and one whose lane has no room is passed over, so that a
//! storm in one lane does not hold up the other. Within a line the order is kept.

use std::collections::VecDeque;

use punctual_model::Lane;
use punctual_model::ports::StoreError;

use crate::lanes::PerLane;
use crate::store::{Request, commit_size};

/// Bytes of requests that may wait in one line; more are refused as busy.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Requests with the notes of those who asked.
#[derive(Debug)]
pub(crate) struct Queue<A> {
    lines: PerLane<Line<A>>,
    /// Whose line comes first in the next group.
    turn: Lane,
}

#[derive(Debug)]
struct Line<A> {
    requests: VecDeque<(Request, A)>,
    bytes: usize,
}

impl<A> Default for Queue<A> {
    fn default() -> Self {
        let line = |_lane| Line { requests: VecDeque::new(), bytes: 0 };
        Self { lines: PerLane::new(line), turn: Lane::Message }
    }
}

impl<A> Queue<A> {
    /// Adds a request to the line of its lane.
    ///
    /// # Errors
    /// [`StoreError::Busy`], with the note, when the line is too long.
    pub(crate) fn push(&mut self, request: Request, note: A) -> Result<(), (StoreError, A)> {
        let size = commit_size(&request);
        let line = self.lines.of_mut(request.lane());
        if line.bytes > 0 && line.bytes + size > QUEUE_BYTES_MAX {
            return Err((StoreError::Busy, note));
        }
        line.bytes += size;
        line.requests.push_back((request, note));
        Ok(())
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        Lane::ALL.into_iter().all(|lane| !self.is_waiting(lane))
    }

    /// Whether something waits in the line of `lane`.
    pub(crate) fn is_waiting(&self, lane: Lane) -> bool {
        !self.lines.of(lane).requests.is_empty()
    }

    /// The next requests to commit together: about `bytes_max` bytes, or one request alone that is
    /// larger, or that has to be alone. Entries come only from lanes that have `room`.
    pub(crate) fn next_group(
        &mut self,
        room: PerLane<bool>,
        bytes_max: usize,
    ) -> Vec<(Request, A)> {
        let first = self.turn;
        let second = other(first);
        self.turn = second;
        let half = bytes_max / 2;
        let second_waits = self.lines.of(second).front(*room.of(second)).is_some();
        let mut group = Group { requests: Vec::new(), bytes: 0, full: false };
        let share = if second_waits { half } else { bytes_max };
        self.lines.of_mut(first).fill(&mut group, *room.of(first), share);
        self.lines.of_mut(second).fill(&mut group, *room.of(second), bytes_max);
        group.requests
    }
}

impl<A> Line<A> {
    /// The first request, if it can be committed.
    fn front(&self, room: bool) -> Option<&Request> {
        let (request, _) = self.requests.front()?;
        (room || !request.takes_room()).then_some(request)
    }

    /// Moves requests to the group until it has `bytes_max` bytes.
    fn fill(&mut self, group: &mut Group<A>, room: bool, bytes_max: usize) {
        while let Some(request) = self.front(room).filter(|_| !group.full) {
            let size = commit_size(request);
            let alone = request.is_alone();
            if !group.requests.is_empty() && (alone || group.bytes + size > bytes_max) {
                return;
            }
            group.full = alone;
            group.bytes += size;
            self.bytes -= size;
            group.requests.extend(self.requests.pop_front());
        }
    }
}

struct Group<A> {
    requests: Vec<(Request, A)>,
    bytes: usize,
    /// It has a request that has to be alone.
    full: bool,
}

const fn other(lane: Lane) -> Lane {
    match lane {
        Lane::Message => Lane::Retry,
        Lane::Retry => Lane::Message,
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::TopicName;

    use super::*;
    use crate::journal::change::Draft;
    use crate::store::InLogs;

    const ROOM: fn(Lane) -> bool = |_| true;

    fn draft(lane: Lane, bytes: usize) -> Request {
        Request::Schedule(Draft {
            lane,
            bytes: vec![0; bytes],
            slots: Vec::new(),
            patches: Vec::new(),
        })
    }

    fn queue(requests: impl IntoIterator<Item = Request>) -> Queue<usize> {
        let mut queue = Queue::default();
        for (number, request) in requests.into_iter().enumerate() {
            queue.push(request, number).unwrap();
        }
        queue
    }

    fn next(queue: &mut Queue<usize>, room: impl FnMut(Lane) -> bool) -> Vec<usize> {
        queue.next_group(PerLane::new(room), 100).into_iter().map(|(_, note)| note).collect()
    }

    #[test]
    fn a_lone_line_gets_whole_groups_in_order() {
        let mut queue = queue((0..5).map(|_| draft(Lane::Message, 40)));
        assert_eq!(next(&mut queue, ROOM), [0, 1]);
        assert_eq!(next(&mut queue, ROOM), [2, 3]);
        assert_eq!(next(&mut queue, ROOM), [4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn two_lines_share_a_group_and_none_starves() {
        let storm = (0..6).map(|_| draft(Lane::Retry, 25));
        let mut queue = queue(storm.chain([draft(Lane::Message, 25), draft(Lane::Message, 200)]));
        assert_eq!(next(&mut queue, ROOM), [6, 0, 1, 2], "what one does not use the other gets");
        assert_eq!(next(&mut queue, ROOM), [3, 4], "a large one waits for its turn");
        assert_eq!(next(&mut queue, ROOM), [7]);
        assert_eq!(next(&mut queue, ROOM), [5]);
    }

    #[test]
    fn a_lane_without_room_is_passed_over() {
        let mut queue = queue([draft(Lane::Retry, 10), draft(Lane::Message, 10)]);
        assert_eq!(next(&mut queue, |lane| lane == Lane::Message), [1]);
        assert_eq!(next(&mut queue, |lane| lane == Lane::Message), []);
        assert!(queue.is_waiting(Lane::Retry));
        assert_eq!(next(&mut queue, ROOM), [0]);
    }

    #[test]
    fn what_brings_no_entries_needs_no_room() {
        let cancel = || Request::Cancel(Vec::new(), InLogs::Unknown);
        let mut queue = queue([cancel(), draft(Lane::Message, 10), cancel()]);
        assert_eq!(next(&mut queue, |_| false), [0]);
        assert_eq!(next(&mut queue, |_| false), []);
        assert_eq!(next(&mut queue, ROOM), [1, 2]);
    }

    #[test]
    fn a_change_of_a_topic_is_a_group_of_its_own() {
        let name = TopicName::new("orders").unwrap();
        let mut queue = queue([
            draft(Lane::Message, 10),
            Request::DeleteTopic(name),
            draft(Lane::Message, 10),
            draft(Lane::Retry, 10),
            draft(Lane::Retry, 10),
        ]);
        assert_eq!(next(&mut queue, ROOM), [0, 3, 4]);
        assert_eq!(next(&mut queue, ROOM), [1]);
        assert_eq!(next(&mut queue, ROOM), [2]);
    }

    #[test]
    fn a_line_that_is_too_long_refuses_and_the_other_does_not() {
        let mut queue = queue([draft(Lane::Retry, QUEUE_BYTES_MAX)]);
        assert!(queue.push(draft(Lane::Retry, 1), 1).is_err());
        assert!(queue.push(draft(Lane::Message, 1), 2).is_ok());
    }
}
