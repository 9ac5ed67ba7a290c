//! Which orders of one call belong together, and in which slot they are carried out.
//!
//! What names a message goes to the slot of that message; what names another order goes with it; new
//! entries go with the first that is named, so that a series and its occurrences, a transaction and
//! its half messages stay in one slot and change together. Pure: no view of the cluster is needed.

use punctual_model::ports::{OnConflict, Order};
use punctual_model::{Entry, Link, MessageId, Parked};

use super::wire::links;
use crate::store::Slot;

/// Orders that are carried out together.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Where; `None` for new entries alone, which go wherever there is room.
    pub(super) slot: Option<Slot>,
    /// Their places in the call, growing.
    pub(super) places: Vec<usize>,
    /// Links to other orders count within these.
    pub(super) orders: Vec<Order>,
}

/// The orders of a call name each other across slots: they can never be carried out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn;

/// The parts of a call. `named` tells for an order whose message has the own id it wants to take
/// over, if somebody has.
pub(super) fn split(
    orders: Vec<Order>,
    named: impl Fn(usize) -> Option<MessageId>,
) -> Result<Vec<Part>, Torn> {
    let slots = slots(&orders, named);
    let mut parts: Vec<Part> = Vec::new();
    let mut homes = Vec::with_capacity(orders.len());
    for (place, (order, slot)) in orders.into_iter().zip(slots).enumerate() {
        let home = parts.iter().position(|part| part.slot == slot).unwrap_or(parts.len());
        if home == parts.len() {
            parts.push(Part { slot, places: Vec::new(), orders: Vec::new() });
        }
        homes.push((home, parts[home].places.len()));
        parts[home].places.push(place);
        parts[home].orders.push(order);
    }
    for (home, part) in parts.iter_mut().enumerate() {
        part.orders.iter_mut().try_for_each(|order| renumber(order, home, &homes))?;
    }
    Ok(parts)
}

/// Whether a call has new entries alone, which name nobody and take nobody's name.
pub(super) fn are_new(orders: &[Order]) -> bool {
    orders.iter().all(|order| match order {
        Order::Schedule { entry, conflict, .. } => {
            *conflict == OnConflict::Reject && parent(entry).is_none()
        }
        Order::Replace { .. } | Order::Cancel { .. } => false,
    })
}

/// The slot of each order.
fn slots(orders: &[Order], named: impl Fn(usize) -> Option<MessageId>) -> Vec<Option<Slot>> {
    let mut slots: Vec<Option<Slot>> = orders
        .iter()
        .enumerate()
        .map(|(place, order)| own_slot(order).or_else(|| named(place).map(slot_of)))
        .collect();
    // An order names only few others, and chains of them are as long as the orders at most.
    for _ in 0..orders.len() {
        if !share(orders, &mut slots) {
            break;
        }
    }
    let first = slots.iter().flatten().next().copied();
    slots.into_iter().map(|slot| slot.or(first)).collect()
}

/// Lets orders without a slot have that of one they name, or that names them. Answers whether any
/// got one.
fn share(orders: &[Order], slots: &mut [Option<Slot>]) -> bool {
    let mut changed = false;
    for (place, order) in orders.iter().enumerate() {
        for other in orders_named(order) {
            let Some(there) = slots.get(other).copied() else { continue };
            match (slots[place], there) {
                (None, Some(slot)) => slots[place] = Some(slot),
                (Some(slot), None) => slots[other] = Some(slot),
                _ => continue,
            }
            changed = true;
        }
    }
    changed
}

/// The slot that an order itself tells.
fn own_slot(order: &Order) -> Option<Slot> {
    match order {
        Order::Replace { id, .. } | Order::Cancel { id, .. } => Some(slot_of(*id)),
        Order::Schedule { entry, .. } => parent(entry).map(slot_of),
    }
}

/// The series or transaction that an entry belongs to.
pub(super) fn parent(entry: &Entry) -> Option<MessageId> {
    let extra = entry.extra.as_ref()?;
    let half = match extra.parked {
        Some(Parked::Half { transaction, .. }) => transaction.id(),
        _ => None,
    };
    extra.series.and_then(Link::id).or(half)
}

/// The slot of a message, wherever it was moved since.
pub(super) fn slot_of(id: MessageId) -> Slot {
    Slot::of(id.key.sequence)
}

fn orders_named(order: &Order) -> impl Iterator<Item = usize> {
    let entry = match order {
        Order::Schedule { entry, .. } | Order::Replace { entry, .. } => Some(entry),
        Order::Cancel { .. } => None,
    };
    links(entry.and_then(|entry| entry.extra.as_deref())).filter_map(|link| match link {
        Link::Order(order) => usize::try_from(order).ok(),
        Link::Id(_) => None,
    })
}

/// Lets links to orders count within the part.
fn renumber(order: &mut Order, home: usize, homes: &[(usize, usize)]) -> Result<(), Torn> {
    let entry = match order {
        Order::Schedule { entry, .. } | Order::Replace { entry, .. } => entry,
        Order::Cancel { .. } => return Ok(()),
    };
    let Some(extra) = entry.extra.as_deref_mut() else { return Ok(()) };
    let half = match &mut extra.parked {
        Some(Parked::Half { transaction, .. }) => Some(transaction),
        _ => None,
    };
    for link in extra.series.iter_mut().chain(&mut extra.links).chain(half) {
        let Link::Order(order) = link else { continue };
        let target = usize::try_from(*order).ok().and_then(|order| homes.get(order));
        match target {
            Some((there, place)) if *there == home => {
                *order = u32::try_from(*place).map_err(|_large| Torn)?;
            }
            _ => return Err(Torn),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use punctual_model::{Basis, Extra, Key, Lane, Message, Partition, Timestamp, TopicId};

    use super::*;

    fn id(slot: u16, counter: u64) -> MessageId {
        let sequence = Slot(slot).sequence(Lane::Message, counter);
        let key = Key { due: Timestamp::from_millis(9).unwrap(), sequence };
        MessageId { key, topic: TopicId::new(20).unwrap(), partition: Partition::new(0).unwrap() }
    }

    fn entry(series: Option<Link>, links: Vec<Link>) -> Entry {
        Entry {
            topic: TopicId::new(20).unwrap(),
            partition: Partition::new(0).unwrap(),
            due: Timestamp::from_millis(9).unwrap(),
            basis: Basis::Delay,
            message: Message::default(),
            extra: Some(Box::new(Extra { series, links, ..Extra::default() })),
        }
    }

    fn schedule(series: Option<Link>) -> Order {
        let entry = entry(series, Vec::new());
        Order::Schedule { lane: Lane::Message, entry, conflict: OnConflict::Reject }
    }

    fn cancel(slot: u16) -> Order {
        Order::Cancel { id: id(slot, 1), expected: None }
    }

    fn shape(parts: &[Part]) -> Vec<(Option<u16>, Vec<usize>)> {
        parts.iter().map(|part| (part.slot.map(|slot| slot.0), part.places.clone())).collect()
    }

    #[test]
    fn new_entries_alone_go_anywhere_and_together() {
        let parts = split(vec![schedule(None), schedule(None)], |_| None).unwrap();
        assert_eq!(shape(&parts), [(None, vec![0, 1])]);
    }

    #[test]
    fn orders_go_where_their_messages_are_and_new_ones_with_the_first() {
        let orders = vec![cancel(3), cancel(5), cancel(3), schedule(None)];
        let parts = split(orders, |_| None).unwrap();
        assert_eq!(shape(&parts), [(Some(3), vec![0, 2, 3]), (Some(5), vec![1])]);
    }

    #[test]
    fn what_belongs_to_a_series_goes_to_its_slot() {
        let orders = vec![cancel(3), schedule(Some(Link::Id(id(7, 1))))];
        let parts = split(orders, |_| None).unwrap();
        assert_eq!(shape(&parts), [(Some(3), vec![0]), (Some(7), vec![1])]);
    }

    #[test]
    fn what_names_another_order_goes_with_it_and_its_links_are_counted_anew() {
        let series = Order::Replace {
            id: id(7, 1),
            expected: id(7, 1).key,
            entry: entry(None, vec![Link::Order(2)]),
        };
        let parts = split(vec![cancel(3), series, schedule(None)], |_| None).unwrap();
        assert_eq!(shape(&parts), [(Some(3), vec![0]), (Some(7), vec![1, 2])]);
        let Order::Replace { entry, .. } = &parts[1].orders[0] else { panic!("{parts:?}") };
        assert_eq!(entry.extra.as_ref().unwrap().links, [Link::Order(1)]);
    }

    #[test]
    fn one_that_takes_a_name_over_goes_to_who_has_it() {
        let named = |place| (place == 1).then(|| id(4, 9));
        let parts = split(vec![schedule(None), schedule(None)], named).unwrap();
        assert_eq!(shape(&parts), [(Some(4), vec![0, 1])]);
    }

    #[test]
    fn orders_that_name_each_other_across_slots_are_refused() {
        let first = Order::Replace {
            id: id(7, 1),
            expected: id(7, 1).key,
            entry: entry(None, vec![Link::Order(1)]),
        };
        let second =
            Order::Replace { id: id(8, 1), expected: id(8, 1).key, entry: entry(None, Vec::new()) };
        assert_eq!(split(vec![first, second], |_| None).unwrap_err(), Torn);
    }
}
