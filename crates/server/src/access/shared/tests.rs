//! Are apps the same on all nodes, whoever changes them, and at the same moment?

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Extensions, HeaderMap};
use punctual_cluster::store::memory::{Call, Fault, Memory};
use punctual_model::{Timestamp, TopicName};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::access::grant::{Grant, Owner, Pattern};
use crate::access::{AppError, Auth, Caller, Facts, Gate, Permission, Target};
use crate::config::AdminToken;

const DEADLINE: Duration = Duration::from_secs(60);
const CHOSEN: &str = "admin.0123456789abcdef";

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn facts() -> Facts {
    let clock = AtomicU64::new(1000);
    Facts {
        owner: Box::new(|_| Owner::Nobody),
        pending: Box::new(Vec::new),
        now: Box::new(move || {
            Timestamp::from_millis(clock.fetch_add(1, Ordering::Relaxed)).unwrap()
        }),
    }
}

fn open(runtime: &Runtime, memory: &Memory, chosen: Option<&str>) -> io::Result<Gate> {
    let documents = Arc::new(memory.clone());
    let opened = runtime.block_on(AppDocuments::open(documents, runtime.handle().clone()))?;
    let chosen = chosen.map(|text| AdminToken::read(text).unwrap().unwrap());
    let auth = Auth { enabled: true, admin: chosen, nodes: Some("of all nodes") };
    Ok(Gate::open(auth, opened, facts())?.0)
}

fn node(runtime: &Runtime, memory: &Memory) -> Gate {
    open(runtime, memory, Some(CHOSEN)).unwrap()
}

fn identify(gate: &Gate, token: &str) -> Option<Caller> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    gate.identify(&headers, &Extensions::new()).ok()
}

/// Waits until a gate sees it so.
fn until(runtime: &Runtime, what: &str, so: impl Fn() -> bool) {
    let waited = runtime.block_on(async {
        tokio::time::timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            while !so() {
                ticks.tick().await;
            }
        })
        .await
    });
    assert!(waited.is_ok(), "{what}");
}

fn create(gate: &Gate, key: &str) -> String {
    let grant = Grant {
        topics: Pattern::read("orders").unwrap(),
        groups: None,
        verbs: vec![Permission::Send],
    };
    let key = AppKey::new(key).unwrap();
    let (record, secret) = gate.create(key, |record| record.grants = vec![grant]).unwrap();
    secret.token(&record.key)
}

#[test]
fn an_app_made_on_one_node_is_let_in_by_the_other_until_it_is_disabled_anywhere() {
    let (runtime, memory) = (runtime(), Memory::default());
    let (here, there) = (node(&runtime, &memory), node(&runtime, &memory));
    let token = create(&here, "orders");
    assert!(identify(&here, &token).is_some(), "at once where it was made");
    until(&runtime, "seen there", || identify(&there, &token).is_some());
    let caller = identify(&there, &token).unwrap();
    let topic = TopicName::new("orders").unwrap();
    assert!(caller.may(Permission::Send, Target::Topic(&topic)));
    here.change("orders", |record| record.enabled = false).unwrap();
    assert!(identify(&here, &token).is_none());
    until(&runtime, "disabled there", || identify(&there, &token).is_none());
    assert!(caller.still_stands().is_err(), "who is in already is sent away too");
    there.change("orders", |record| record.enabled = true).unwrap();
    until(&runtime, "enabled here", || identify(&here, &token).is_some());
    here.change("orders", |record| record.grants.clear()).unwrap();
    let caller = identify(&there, &token).unwrap();
    until(&runtime, "no right there", || !caller.may(Permission::Send, Target::Topic(&topic)));
}

#[test]
fn a_secret_rotated_on_one_node_ends_on_the_other() {
    let (runtime, memory) = (runtime(), Memory::default());
    let (here, there) = (node(&runtime, &memory), node(&runtime, &memory));
    let first = create(&here, "orders");
    until(&runtime, "seen there", || identify(&there, &first).is_some());
    let (_, second) = there.rotate("orders", None).unwrap();
    let second = second.token(&AppKey::new("orders").unwrap());
    assert!(identify(&there, &first).is_none() && identify(&there, &second).is_some());
    until(&runtime, "rotated here", || identify(&here, &first).is_none());
    assert!(identify(&here, &second).is_some());
}

#[test]
fn an_app_that_was_removed_and_made_again_is_another_one_everywhere() {
    let (runtime, memory) = (runtime(), Memory::default());
    let (here, there) = (node(&runtime, &memory), node(&runtime, &memory));
    let first = create(&here, "orders");
    until(&runtime, "seen there", || identify(&there, &first).is_some());
    let before = identify(&there, &first).unwrap();
    here.delete("orders").unwrap();
    let second = create(&here, "orders");
    until(&runtime, "the new one is seen there", || identify(&there, &second).is_some());
    assert!(identify(&there, &first).is_none() && before.still_stands().is_err());
    there.delete("orders").unwrap();
    assert!(matches!(there.delete("orders"), Err(AppError::NotFound)));
    until(&runtime, "gone here", || here.get("orders").is_none());
}

#[test]
fn of_changes_on_two_nodes_at_the_same_time_none_gets_lost() {
    let (runtime, memory) = (runtime(), Memory::default());
    let (here, there) = (node(&runtime, &memory), node(&runtime, &memory));
    create(&here, "orders");
    const EACH: u64 = 25;
    std::thread::scope(|scope| {
        for gate in [&here, &there] {
            scope.spawn(move || {
                for _ in 0..EACH {
                    gate.change("orders", |record| {
                        let before = record.quotas.pending.unwrap_or(0);
                        record.quotas.pending = Some(before + 1);
                    })
                    .unwrap();
                }
            });
        }
    });
    let count = |gate: &Gate| gate.get("orders").unwrap().quotas.pending;
    until(&runtime, "both count all", || {
        [count(&here), count(&there)] == [Some(2 * EACH), Some(2 * EACH)]
    });
}

#[test]
fn only_one_of_two_nodes_makes_an_app_of_a_key() {
    let (runtime, memory) = (runtime(), Memory::default());
    let (here, there) = (node(&runtime, &memory), node(&runtime, &memory));
    for round in 0..10 {
        let key = format!("app-{round}");
        let made = std::thread::scope(|scope| {
            let makers = [&here, &there].map(|gate| {
                let key = AppKey::new(&key).unwrap();
                scope.spawn(move || gate.create(key, |_| ()).map(drop))
            });
            makers.map(|maker| maker.join().unwrap())
        });
        let exists = made.iter().filter(|made| matches!(made, Err(AppError::Exists))).count();
        let done = made.iter().filter(|made| made.is_ok()).count();
        assert_eq!((done, exists), (1, 1), "{made:?}");
    }
}

#[test]
fn without_a_configured_token_a_cluster_does_not_start() {
    let (runtime, memory) = (runtime(), Memory::default());
    let error = open(&runtime, &memory, None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("auth.admin_token"), "{error}");
    let gate = node(&runtime, &memory);
    assert!(identify(&gate, CHOSEN).is_some());
    assert!(matches!(gate.rotate("admin", None), Err(AppError::Reserved(_))));
}

#[test]
fn while_the_store_is_away_apps_stay_as_they_are_and_cannot_be_changed() {
    let (runtime, memory) = (runtime(), Memory::default());
    let gate = node(&runtime, &memory);
    let token = create(&gate, "orders");
    memory.fail_next(Call::ChangedSince, Fault::Unavailable, 1000);
    memory.fail_next(Call::PutDocument, Fault::Unavailable, 1000);
    let refused = gate.change("orders", |record| record.enabled = false);
    assert!(matches!(refused, Err(AppError::Disk(_))), "{refused:?}");
    assert!(identify(&gate, &token).is_some());
}

#[test]
fn an_app_that_cannot_be_read_ends_the_start_and_is_locked_out_later() {
    let (runtime, memory) = (runtime(), Memory::default());
    let gate = node(&runtime, &memory);
    let token = create(&gate, "orders");
    let spoil = |name: &str, expected| {
        let put = memory.put(KIND, name.into(), expected, Some(Bytes::from_static(b"{}\n")));
        runtime.block_on(put).unwrap().unwrap()
    };
    let documents = runtime.block_on(memory.changed_since(KIND, 0)).unwrap().0;
    spoil("orders", documents[0].revision);
    until(&runtime, "locked out", || identify(&gate, &token).is_none());
    let error = open(&runtime, &memory, Some(CHOSEN)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("orders"), "{error}");
}
