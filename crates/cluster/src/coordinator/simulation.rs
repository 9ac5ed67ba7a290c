//! Nodes, leaders and a service in simulated time: what must hold whatever happens, and what must
//! come about in the end.
//!
//! The nodes are the real ones; only the service, the clocks and the network are made up.

mod service;
mod world;

use std::time::Duration;

use punctual_model::ports::Coordinator;

use self::world::{DELAY, World};

const SECOND: Duration = Duration::from_secs(1);

/// Within which a slot whose owner is gone is held again.
const TAKEOVER: Duration = world::LEASE.saturating_add(Duration::from_secs(5));

fn cluster(nodes: usize, slots: u32) -> World {
    let mut world = World::new(7, slots);
    for _ in 0..nodes {
        world.start();
    }
    let all = slots.try_into().unwrap();
    world.run_until(5 * SECOND, "all slots are held", |world| world.is_at_rest(all));
    world
}

#[test]
fn nodes_that_start_together_share_the_slots_without_a_move() {
    let world = cluster(3, 16);
    let mut shares = world.shares();
    shares.sort_unstable();
    assert_eq!(shares, [5, 5, 6]);
    assert_eq!(world.moves, 16, "each slot was given out once");
    for node in &world.nodes {
        let view = node.seat.view();
        assert_eq!((view.nodes.len(), view.slots.len(), view.slots_wanted), (3, 16, 16));
        assert_eq!(view.leader, world.nodes[world.leader().unwrap()].name());
        assert!(view.slots.iter().all(|slot| slot.owner.is_some() && slot.next.is_none()));
    }
}

#[test]
fn a_new_node_gets_its_share_and_nothing_else_moves() {
    let mut world = cluster(3, 16);
    let before = world.moves;
    world.start();
    world.run_until(5 * SECOND, "the new one has its share", |world| {
        world.shares()[3] == 4 && world.is_at_rest(16)
    });
    assert_eq!(world.moves - before, 4);
}

#[test]
fn slots_of_a_killed_node_are_held_again_in_time() {
    for leader in [true, false] {
        let mut world = cluster(3, 16);
        let of_leader = world.leader().unwrap();
        let victim = if leader { of_leader } else { (of_leader + 1) % 3 };
        world.kill(victim);
        world.run_until(TAKEOVER, "its slots are held again", |world| world.is_at_rest(16));
        assert!(world.leader().is_some_and(|leader| leader != victim));
    }
}

#[test]
fn a_node_that_leaves_is_not_waited_for() {
    let mut world = cluster(3, 16);
    world.nodes[0].seat.leaving.send_replace(true);
    world.run_until(SECOND, "it has left", |world| !world.nodes[0].lives());
    assert!(world.nodes[0].seat.holding().slots.is_empty());
    world.run_until(DELAY + SECOND, "its slots are held again", |world| world.is_at_rest(16));
}

#[test]
fn a_node_that_was_stopped_beyond_its_lease_comes_back_under_another_name() {
    for leader in [true, false] {
        let mut world = cluster(3, 16);
        let of_leader = world.leader().unwrap();
        let victim = if leader { of_leader } else { (of_leader + 1) % 3 };
        let name = world.nodes[victim].name();
        let held = world.nodes[victim].seat.holding();
        world.nodes[victim].paused_until = world.now() + Duration::from_secs(3600);
        world.run_for(TAKEOVER);
        assert_eq!(world.nodes[victim].seat.holding(), held, "it has not noticed anything");
        assert!(!world.nodes[victim].seat.is_certain(), "but does not believe it");
        assert!(world.nodes.iter().map(|node| node.certain().len()).sum::<usize>() == 16);
        world.nodes[victim].paused_until = Duration::ZERO;
        world.run_until(6 * SECOND, "it has its share again", |world| world.is_at_rest(16));
        assert_ne!(world.nodes[victim].name(), name);
        let again = world.nodes[victim].seat.holding();
        let newest = held.slots.iter().map(|held| held.term).max().unwrap();
        assert!(again.slots.iter().all(|held| held.term > newest), "{again:?} after {held:?}");
    }
}

#[test]
fn a_short_stop_changes_nothing() {
    let mut world = cluster(3, 16);
    let (name, moves) = (world.nodes[1].name(), world.moves);
    world.nodes[1].paused_until = world.now() + 4 * SECOND;
    world.run_for(20 * SECOND);
    assert!(world.is_at_rest(16));
    assert_eq!((world.nodes[1].name(), world.moves), (name, moves));
}

#[test]
fn while_the_service_is_down_nothing_is_held_and_afterwards_everything_as_before() {
    let mut world = cluster(3, 16);
    let moves = world.moves;
    world.down = true;
    world.run_for(7 * SECOND);
    assert_eq!(world.shares(), [0, 0, 0], "the margin has begun");
    world.run_for(23 * SECOND);
    assert_eq!(world.shares(), [0, 0, 0]);
    world.restart_service();
    world.run_until(5 * SECOND, "it goes on by itself", |world| world.is_at_rest(16));
    assert_eq!(world.moves, moves, "the sessions were kept");
}

#[test]
fn a_node_that_is_cut_off_stops_and_comes_back() {
    let mut world = cluster(3, 16);
    let victim = world.leader().unwrap();
    world.nodes[victim].cut_off = true;
    world.run_until(TAKEOVER, "the others have it all", |world| {
        world.shares().iter().sum::<usize>() == 16 && world.shares()[victim] == 0
    });
    world.nodes[victim].cut_off = false;
    world.run_until(6 * SECOND, "it has its share again", |world| world.is_at_rest(16));
}

#[test]
fn two_that_believe_to_lead_do_not_both_assign() {
    let mut world = cluster(3, 16);
    let old = world.leader().unwrap();
    // A move that the old leader is about to finish when it is stopped, with a write under way.
    world.start();
    world.run_until(5 * SECOND, "slots are to move", |world| {
        world.nodes.iter().any(|node| node.seat.holding().slots.iter().any(|held| held.leaving))
    });
    world.nodes[old].paused_until = world.now() + Duration::from_secs(600);
    world.run_for(TAKEOVER);
    let new = world.leader().unwrap();
    assert_ne!(new, old);
    assert_eq!(world.shares().iter().sum::<usize>(), 16);
    // Both believe it now: the old one goes on where it was.
    world.nodes[old].paused_until = Duration::ZERO;
    world.run_until(6 * SECOND, "all is even", |world| world.is_at_rest(16));
    assert_eq!(world.leader(), Some(new));
}

#[test]
fn a_hand_over_survives_the_death_of_either_side() {
    for victim_owns in [true, false] {
        let mut world = cluster(2, 16);
        for node in &mut world.nodes {
            node.obliging = false;
        }
        let third = world.start();
        let leaving = |world: &World, node: usize| {
            world.nodes[node].seat.holding().slots.iter().filter(|held| held.leaving).count()
        };
        world.run_until(5 * SECOND, "both are to give", |world| {
            leaving(world, 0) > 0 && leaving(world, 1) > 0
        });
        assert_eq!(world.shares()[third], 0, "nobody has let go yet");
        world.kill(if victim_owns { 0 } else { third });
        world.run_for(TAKEOVER);
        for node in &mut world.nodes {
            node.obliging = true;
        }
        world.run_until(5 * SECOND, "all is even", |world| world.is_at_rest(16));
    }
}

#[test]
fn slots_are_added_and_retired_ones_end_when_they_are_empty() {
    let mut world = cluster(3, 8);
    let resize = |world: &mut World, slots: u32| {
        let seat = world.nodes[1].seat.clone();
        let mut asked = Box::pin(async move { seat.resize(slots).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..100 {
            if let std::task::Poll::Ready(answer) = asked.as_mut().poll(&mut context) {
                return answer.unwrap();
            }
            world.run_for(Duration::from_millis(10));
        }
        panic!("nobody answered");
    };
    resize(&mut world, 20);
    world.run_until(5 * SECOND, "there are more", |world| world.is_at_rest(20));
    for node in &mut world.nodes {
        node.obliging = false;
    }
    resize(&mut world, 6);
    let retired = |world: &World| {
        let held = world.nodes.iter().flat_map(|node| node.seat.holding().slots.clone());
        held.filter(|held| held.retired && held.slot >= 6).count()
    };
    world.run_until(5 * SECOND, "those past the sixth are retired", |world| retired(world) == 14);
    world.run_for(5 * SECOND);
    assert_eq!(retired(&world), 14, "they wait until they are drained");
    // Their owner may go meanwhile; somebody has to drain them.
    world.kill(0);
    world.run_for(TAKEOVER);
    assert_eq!(retired(&world), 14);
    for node in &mut world.nodes {
        node.obliging = true;
    }
    world.run_until(10 * SECOND, "they have ended", |world| {
        world.nodes[1].seat.view().slots.len() == 6 && world.is_at_rest(6)
    });
}

/// What may happen to a cluster at any moment.
fn misfortune(world: &mut World) {
    let living: Vec<usize> =
        (0..world.nodes.len()).filter(|node| world.nodes[*node].lives()).collect();
    let index = usize::try_from(world.dice.roll(living.len().max(1) as u64)).unwrap();
    let Some(&node) = living.get(index) else {
        world.start();
        return;
    };
    let now = world.now();
    match world.dice.roll(11) {
        0 => world.kill(node),
        1 | 2 if living.len() < 6 => drop(world.start()),
        3 | 4 => {
            let millis = world.dice.roll(25_000);
            world.nodes[node].paused_until = now + Duration::from_millis(millis);
        }
        5 => world.nodes[node].cut_off = true,
        6 | 7 => world.nodes.iter_mut().for_each(|node| node.cut_off = false),
        8 => {
            if world.down {
                world.restart_service();
            } else {
                world.down = world.dice.hits(2);
            }
        }
        9 => drop(world.nodes[node].seat.leaving.send_replace(true)),
        _ => {
            let slots = 4 + u32::try_from(world.dice.roll(12)).unwrap();
            let seat = world.nodes[node].seat.clone();
            let mut ask = Box::pin(async move { seat.resize(slots).await });
            // The answer is not waited for.
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _asked = ask.as_mut().poll(&mut context);
        }
    }
}

/// One life of a cluster: misfortunes for a while, then calm. Answers how often slots moved.
fn live(seed: u64) -> usize {
    let mut world = World::new(seed, 8);
    for _ in 0..3 {
        world.start();
    }
    world.roughen(true);
    for _ in 0..40 {
        let millis = world.dice.roll(4000);
        world.run_for(Duration::from_millis(millis));
        misfortune(&mut world);
    }
    world.roughen(false);
    if world.down {
        world.restart_service();
    }
    for node in &mut world.nodes {
        node.cut_off = false;
        node.paused_until = Duration::ZERO;
    }
    while world.nodes.iter().filter(|node| node.lives()).count() < 2 {
        world.start();
    }
    let calm = TAKEOVER + 10 * SECOND;
    world.run_until(calm, &format!("seed {seed} comes to rest"), |world| {
        let living = world.nodes.iter().find(|node| node.lives()).unwrap();
        let wanted = living.seat.view().slots_wanted;
        wanted > 0 && world.is_at_rest(wanted.try_into().unwrap())
    });
    world.moves
}

#[test]
fn whatever_happens_no_slot_has_two_owners_and_in_the_end_all_have_one() {
    const SEEDS: u64 = 100;
    let moves: usize = (0..SEEDS).map(live).sum();
    println!("{SEEDS} lives of a cluster, {moves} times a slot changed hands, never twice at once");
    assert!(moves > 1000, "the misfortunes make slots move, not {moves} times");
}
