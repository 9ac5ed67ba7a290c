//! Does a producer lose or repeat anything when answers are lost and streams are cut?

#![expect(clippy::unwrap_used, reason = "a failed step may stop a test")]

mod fake;

use std::time::Duration;

use fake::{Broker, OnSend, PATIENCE, problem};
use punctual_client::{
    Cancel, Change, ChangeError, Client, Filter, Message, Producer, ProducerOptions, RetryPolicy,
};
use tokio::time::timeout;

fn bodies(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Message> {
    numbers.map(|number| Message::new(number.to_string()))
}

async fn send_all(producer: &Producer, count: u32) -> Vec<String> {
    let outcomes = timeout(PATIENCE, producer.send_all("t", bodies(0..count))).await.unwrap();
    let word = |outcome: &Result<punctual_client::Receipt, punctual_client::SendError>| {
        outcome.as_ref().map_or_else(
            |error| error.code().to_owned(),
            |receipt| if receipt.duplicate { "duplicate" } else { "stored" }.to_owned(),
        )
    };
    outcomes.iter().map(word).collect()
}

fn stored(broker: &Broker) -> Vec<u32> {
    let mut stored: Vec<u32> =
        broker.with(|state| state.stored.values().map(|body| body.parse().unwrap()).collect());
    stored.sort_unstable();
    stored
}

#[tokio::test]
async fn g3_a_batch_whose_answer_was_lost_is_sent_again_and_stored_once() {
    let broker = Broker::start().await;
    broker.with(|state| {
        state.on_send.extend([OnSend::StoreAndCut, OnSend::Cut, OnSend::StoreAndCut]);
    });
    let client = broker.client().await;
    assert_eq!(send_all(&client.producer(), 10).await, vec!["duplicate"; 10]);
    assert_eq!(stored(&broker), (0..10).collect::<Vec<_>>());
    let ids = broker.with(|state| state.stored.keys().cloned().collect::<Vec<_>>());
    assert!(ids.iter().all(|id| id.starts_with("c-")), "{ids:?}");
}

#[tokio::test]
async fn without_ids_a_lost_answer_is_told_and_nothing_is_sent_twice() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_send.push_back(OnSend::StoreAndCut));
    let options = ProducerOptions { idempotent: false, ..ProducerOptions::default() };
    let producer = broker.client().await.producer_with(options);
    assert_eq!(send_all(&producer, 3).await, vec!["unanswered"; 3]);
    assert_eq!(send_all(&producer, 1).await, ["stored"]);
    assert_eq!(broker.with(|state| state.nameless.len()), 4);
}

#[tokio::test]
async fn a_refused_message_takes_no_other_of_its_batch_along() {
    let broker = Broker::start().await;
    let refuse = |index| OnSend::Refuse(problem("id_conflict", Some(index), false));
    broker.with(|state| state.on_send.extend([refuse(2), refuse(0)]));
    let client = broker.client().await;
    let told = send_all(&client.producer(), 4).await;
    assert_eq!(told, ["id_conflict", "stored", "id_conflict", "stored"]);
    assert_eq!(stored(&broker), [1, 3]);
}

#[tokio::test]
async fn what_is_refused_for_a_while_is_repeated_and_what_is_refused_for_good_is_not() {
    let broker = Broker::start().await;
    let busy = OnSend::Refuse(problem("too_busy", None, true));
    let never = OnSend::Refuse(problem("forbidden", None, false));
    broker.with(|state| state.on_send.extend([busy.clone(), busy, OnSend::Store, never]));
    let client = broker.client().await;
    assert_eq!(send_all(&client.producer(), 2).await, ["stored", "stored"]);
    assert_eq!(send_all(&client.producer(), 2).await, ["forbidden", "forbidden"]);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_halved() {
    let broker = Broker::start().await;
    let too_large = OnSend::Refuse(problem("batch_too_large", None, false));
    broker.with(|state| state.on_send.push_back(too_large));
    let client = broker.client().await;
    assert_eq!(send_all(&client.producer(), 8).await, vec!["stored"; 8]);
    assert_eq!(broker.with(|state| state.batches.clone()), [8, 4, 4]);
}

#[tokio::test]
async fn a_broker_that_says_nothing_is_given_up_and_asked_again() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_send.push_back(OnSend::Silence));
    let quick = Client::builder(&broker.url()).answer_timeout(Duration::from_millis(500));
    let client = quick.connect().await.unwrap();
    assert_eq!(send_all(&client.producer(), 1).await, ["stored"]);
    assert!(broker.with(|state| state.batches.len()) >= 2);
}

#[tokio::test]
async fn a_send_ends_when_its_time_is_over_and_says_whether_it_may_be_stored() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_send.extend(vec![OnSend::Silence; 1000]));
    // Long enough that it was sent on a machine under load.
    let policy = RetryPolicy { give_up_after: Duration::from_secs(5), ..RetryPolicy::default() };
    let builder = Client::builder(&broker.url()).retry(policy);
    let client = builder.connect().await.unwrap();
    assert_eq!(send_all(&client.producer(), 1).await, ["unanswered"]);
    let policy = RetryPolicy { give_up_after: Duration::from_secs(1), ..policy };
    let nowhere = Client::builder("http://127.0.0.1:1").retry(policy).connect_lazy().unwrap();
    assert_eq!(send_all(&nowhere.producer(), 1).await, ["unreachable"]);
}

#[tokio::test]
async fn sends_at_the_same_time_share_batches() {
    let broker = Broker::start().await;
    let producer = broker.client().await.producer();
    let mut sends = Vec::new();
    for message in bodies(0..500) {
        sends.push(producer.begin("t", message).await.unwrap());
    }
    for send in sends {
        timeout(PATIENCE, send.outcome()).await.unwrap().unwrap();
    }
    assert_eq!(stored(&broker), (0..500).collect::<Vec<_>>());
    let batches = broker.with(|state| state.batches.len());
    assert!(batches < 250, "{batches} batches for 500 messages");
}

#[tokio::test]
async fn a_full_queue_makes_senders_wait_and_a_dropped_wait_sends_nothing() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_send.push_back(OnSend::Silence));
    let options = ProducerOptions { queue_bytes: 1000, ..ProducerOptions::default() };
    let producer = broker.client().await.producer_with(options);
    let large = || Message::new(vec![b'7'; 900]);
    let first = producer.begin("t", large()).await.unwrap();
    broker.until("the first batch", |state| (!state.batches.is_empty()).then_some(())).await;
    let mut second = Box::pin(producer.begin("t", large()));
    tokio::select! {
        biased;
        _ = &mut second => panic!("there is no room"),
        () = tokio::task::yield_now() => {}
    }
    drop(second);
    drop(first);
    assert_eq!(broker.with(|state| state.batches.len()), 1, "it was never in the queue");
}

#[tokio::test]
async fn a_dropped_send_that_is_in_the_queue_is_sent_all_the_same() {
    let broker = Broker::start().await;
    let producer = broker.client().await.producer();
    drop(producer.begin("t", Message::new("1")).await.unwrap());
    producer.flush().await;
    assert_eq!(stored(&broker), [1]);
}

#[tokio::test]
async fn a_closed_producer_has_sent_everything_and_takes_nothing_more() {
    let broker = Broker::start().await;
    broker.with(|state| state.on_send.push_back(OnSend::StoreAndCut));
    let client = broker.client().await;
    let producer = client.producer();
    for message in bodies(0..10) {
        drop(producer.begin("t", message).await.unwrap());
    }
    timeout(PATIENCE, producer.close()).await.unwrap();
    assert_eq!(stored(&broker), (0..10).collect::<Vec<_>>());
    let refused = producer.send("t", Message::new("11")).await.unwrap_err();
    assert_eq!(refused.code(), "closed");
    assert!(client.producer().send("t", Message::new("12")).await.is_ok(), "a new one is open");
}

#[tokio::test]
async fn a_message_that_can_never_be_sent_is_refused_here() {
    let broker = Broker::start().await;
    let producer = broker.client().await.producer();
    let refused = producer.send("t", Message::new(vec![0; 33 << 20])).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_retriable()), ("body_too_large", false));
}

#[tokio::test]
async fn a_cancel_says_what_it_found() {
    let broker = Broker::start().await;
    let producer = broker.client().await.producer();
    let found = [
        ("pending", Cancel::Cancelled),
        ("already_delivered", Cancel::AlreadyDelivered),
        ("already_cancelled", Cancel::AlreadyCancelled),
        ("not_found", Cancel::NotFound),
    ];
    for (id, expected) in found {
        assert_eq!(producer.cancel(id).await, Ok(expected));
        assert_eq!(producer.cancel_own("t", id).await, Ok(expected));
    }
    assert_eq!(producer.cancel("forbidden").await.unwrap_err().code(), "forbidden");
    assert_eq!(producer.get("x").await.unwrap_err().code(), "not_found");
    assert_eq!(producer.deliver_now("x").await.unwrap_err().code(), "already_delivered");
}

#[tokio::test]
async fn a_change_of_a_version_is_not_repeated_when_its_answer_is_lost() {
    let broker = Broker::start().await;
    let producer = broker.client().await.producer();
    broker.with(|state| state.on_send.push_back(OnSend::Cut));
    let lost = producer.change("x", Change::new().body("new").version(3)).await;
    assert!(matches!(lost, Err(ChangeError::Unanswered(_))), "{lost:?}");
    broker.with(|state| state.on_send.push_back(OnSend::Cut));
    assert!(producer.pause(("t", "own")).await.is_ok(), "without a version it is");
}

#[tokio::test]
async fn what_is_pending_comes_page_by_page() {
    let broker = Broker::start().await;
    let producer = broker.client().await.producer();
    let mut pages = producer.list("t", Filter::new().page_size(2));
    let mut sizes = Vec::new();
    while let Some(page) = pages.next_page().await.unwrap() {
        sizes.push(page.len());
    }
    assert_eq!(sizes, [2, 2, 1]);
    let mut pages = producer.list("t", Filter::new().page_size(2));
    let mut ids = Vec::new();
    while let Some(message) = pages.next().await.unwrap() {
        ids.push(message.id);
    }
    assert_eq!(ids, ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn every_request_carries_the_token_and_an_id_of_its_own() {
    let broker = Broker::start().await;
    let client = broker.client().await;
    assert_eq!(send_all(&client.producer(), 1).await, ["stored"]);
    client.producer().cancel("pending").await.unwrap();
    let (tokens, ids) = broker.with(|state| (state.tokens.clone(), state.request_ids.clone()));
    assert_eq!(tokens, ["Bearer key.secret", "Bearer key.secret"]);
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
}
