//! Does a consumer settle everything it handles, whatever happens to its stream and its handlers?

#![expect(clippy::disallowed_methods, reason = "a task beside the test ends with it")]

mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::{Broker, OnSettle, PATIENCE, Settled};
use punctual_client::{Failure, Reject, Retry};
use punctual_proto::v1;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

fn delivery(id: &str, receipt: &str) -> v1::Delivery {
    v1::Delivery {
        id: id.to_owned(),
        receipt: receipt.to_owned(),
        body: id.to_owned().into(),
        attempt: 1,
        ..v1::Delivery::default()
    }
}

fn give(broker: &Broker, ids: &[&str]) {
    broker.with(|state| {
        state.deliveries.extend(ids.iter().map(|id| delivery(id, &format!("receipt of {id}"))));
    });
}

/// Waits until so much is settled, extensions aside.
async fn settled(broker: &Broker, count: usize) -> Vec<Settled> {
    let look = |state: &mut fake::State| {
        let is_end = |one: &&Settled| !matches!(one, Settled::Extended(_));
        let ends: Vec<_> = state.settled.iter().filter(is_end).cloned().collect();
        (ends.len() >= count).then_some(ends)
    };
    broker.until("everything to be settled", look).await
}

fn acked(id: &str) -> Settled {
    Settled::Acked(format!("receipt of {id}"))
}

#[tokio::test]
async fn what_a_handler_says_becomes_of_its_message() {
    let broker = Broker::start().await;
    let consumer = broker.client().await.consumer("t", "g").start(|delivery| async move {
        match delivery.text()? {
            "ok" => Ok(()),
            "later" => Err(Retry::after(Duration::from_secs(9)).because("not now").into()),
            "never" => Err(Reject::new("nonsense").into()),
            "panics" => panic!("with these words"),
            _ => Err(Failure::new("some error")),
        }
    });
    for id in ["ok", "later", "never", "panics", "fails"] {
        give(&broker, &[id]);
    }
    let mut told: Vec<_> = settled(&broker, 5).await.iter().map(words).collect();
    told.sort();
    let expected = [
        "receipt of fails: again, some error",
        "receipt of later: again after 9s, not now",
        "receipt of never: reject, nonsense",
        "receipt of ok: acked",
        "receipt of panics: again, the handler panicked: with these words",
    ];
    assert_eq!(told, expected);
    timeout(PATIENCE, consumer.stop()).await.unwrap().unwrap();
}

fn words(settled: &Settled) -> String {
    match settled {
        Settled::Acked(receipt) => format!("{receipt}: acked"),
        Settled::Nacked(receipt, nack) => {
            let error = nack.error.as_deref().unwrap_or_default();
            let what = match (nack.reject, nack.delay) {
                (true, _) => "reject".to_owned(),
                (false, Some(delay)) => format!("again after {}s", delay.seconds),
                (false, None) => "again".to_owned(),
            };
            format!("{receipt}: {what}, {error}")
        }
        Settled::Extended(receipt) => format!("{receipt}: extended"),
        Settled::Released(receipt) => format!("{receipt}: released"),
    }
}

#[tokio::test]
async fn an_ack_lost_with_its_connection_is_sent_again() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_settle.extend([OnSettle::Cut, OnSettle::Cut]));
    let consumer = broker.client().await.consumer("t", "g").start(|_| async { Ok(()) });
    give(&broker, &["a"]);
    assert_eq!(settled(&broker, 1).await, [acked("a")]);
    timeout(PATIENCE, consumer.stop()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_given_again_because_its_ack_was_lost_is_not_handled_twice() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_settle.push_back(OnSettle::NotHeld));
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let consumer = broker.client().await.consumer("t", "g").start(move |_| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    give(&broker, &["a"]);
    broker.until("the first ack", |state| state.on_settle.is_empty().then_some(())).await;
    broker.with(|state| state.deliveries.push_back(delivery("a", "another receipt")));
    assert_eq!(settled(&broker, 1).await, [Settled::Acked("another receipt".to_owned())]);
    assert_eq!(handled.load(Ordering::SeqCst), 1);
    timeout(PATIENCE, consumer.stop()).await.unwrap().unwrap();
}

#[tokio::test]
async fn no_more_handlers_run_than_allowed_and_no_more_is_asked_for() {
    let broker = Broker::start().await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&running), Arc::clone(&most));
    let consumer = broker.client().await.consumer("t", "g").concurrency(3).start(move |_| {
        let (running, most) = counts.clone();
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let ids: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    give(&broker, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(settled(&broker, 50).await.len(), 50);
    timeout(PATIENCE, consumer.stop()).await.unwrap().unwrap();
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert!(broker.with(|state| state.credit_max) <= 3);
}

#[tokio::test]
async fn the_lease_is_extended_while_a_handler_runs() {
    let broker = Broker::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let consumer = broker.client().await.consumer("t", "g").lease(Duration::from_secs(1));
    let running = consumer.start(move |_| {
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await?.forget();
            Ok(())
        }
    });
    give(&broker, &["a"]);
    let extended = Settled::Extended("receipt of a".to_owned());
    let is_extended = |state: &mut fake::State| {
        (state.settled.iter().filter(|one| **one == extended).count() >= 2).then_some(())
    };
    broker.until("two extensions", is_extended).await;
    gate.add_permits(1);
    assert_eq!(settled(&broker, 1).await, [acked("a")]);
    timeout(PATIENCE, running.stop()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_consumer_that_stops_waits_for_its_handlers_and_gives_back_the_rest() {
    let broker = Broker::start().await;
    let (gate, (begun, mut begins)) = (Arc::new(Semaphore::new(0)), mpsc::channel(9));
    let wait = Arc::clone(&gate);
    let consumer = broker.client().await.consumer("t", "g").concurrency(1).prefetch(2);
    let running = consumer.start(move |_| {
        let (wait, begun) = (Arc::clone(&wait), begun.clone());
        async move {
            begun.send(()).await?;
            wait.acquire().await?.forget();
            Ok(())
        }
    });
    give(&broker, &["a", "b", "c"]);
    timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
    broker.until("all to be given", |state| state.deliveries.is_empty().then_some(())).await;
    let stopping = tokio::task::spawn(running.stop());
    let stopped = |state: &mut fake::State| state.was_stopped.then_some(());
    broker.until("the consumer to say that it stops", stopped).await;
    gate.add_permits(1);
    timeout(PATIENCE, stopping).await.unwrap().unwrap().unwrap();
    let mut told: Vec<_> = settled(&broker, 3).await.iter().map(words).collect();
    told.sort();
    let expected = ["receipt of a: acked", "receipt of b: released", "receipt of c: released"];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_handler_that_outlasts_the_drain_is_broken_off_and_its_message_comes_again() {
    let broker = Broker::start().await;
    let consumer = broker.client().await.consumer("t", "g").drain_limit(Duration::ZERO);
    let (begun, mut begins) = mpsc::channel(1);
    let running = consumer.start(move |_| {
        let begun = begun.clone();
        async move {
            begun.send(()).await?;
            std::future::pending().await
        }
    });
    give(&broker, &["a"]);
    timeout(PATIENCE, begins.recv()).await.unwrap().unwrap();
    timeout(PATIENCE, running.stop()).await.unwrap().unwrap();
    let told: Vec<_> = settled(&broker, 1).await.iter().map(words).collect();
    let expected = "receipt of a: again after 0s, the consumer stopped before it was handled";
    assert_eq!(told, [expected]);
}
