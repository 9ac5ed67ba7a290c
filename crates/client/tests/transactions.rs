//! Is a decision told until the broker knows it, and is the broker answered when it asks?

#![expect(clippy::disallowed_methods, reason = "a task beside the test ends with it")]

mod fake;

use fake::{Broker, PATIENCE};
use punctual_client::{Decision, Message, RunError};
use punctual_proto::v1;
use tokio::sync::oneshot;
use tokio::time::timeout;

fn one_message() -> [(&'static str, Message); 1] {
    [("orders", Message::new("order"))]
}

fn decisions(broker: &Broker) -> Vec<(String, &'static str)> {
    broker.with(|state| state.decisions.clone())
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_repeated_until_it_is_known() {
    let broker = Broker::start().await;
    broker.with(|state| state.commits_lost = 3);
    let client = broker.client().await;
    let transaction = client.transaction("shop").send(one_message());
    let done = timeout(PATIENCE, transaction.run(|| async { Ok::<_, ()>(42) })).await.unwrap();
    assert_eq!(done, Ok(42));
    assert_eq!(decisions(&broker), vec![("shop".to_owned(), "commit"); 4]);
    let prepared = broker.with(|state| state.prepared.pop().unwrap());
    let id = prepared.messages[0].message.as_ref().unwrap().id.clone();
    assert!(id.is_some_and(|id| id.starts_with("c-")), "preparing again is harmless");
}

#[tokio::test]
async fn failed_work_rolls_back_and_its_error_is_told() {
    let broker = Broker::start().await;
    let client = broker.client().await;
    let transaction = client.transaction("shop").send(one_message());
    let failed = transaction.run(|| async { Err::<(), _>("out of stock") }).await;
    assert_eq!(failed, Err(RunError::RolledBack("out of stock")));
    assert_eq!(decisions(&broker), [("shop".to_owned(), "rollback")]);
}

#[tokio::test]
async fn what_is_not_prepared_is_not_done() {
    let broker = Broker::start().await;
    let client = broker.client().await;
    let transaction = client.transaction("forbidden").send(one_message());
    let mut was_begun = false;
    let refused = transaction
        .run(|| {
            was_begun = true;
            async { Ok::<_, ()>(()) }
        })
        .await
        .unwrap_err();
    assert!(matches!(refused, RunError::Prepare(_)) && refused.code() == "forbidden");
    assert!(!was_begun);
}

#[tokio::test]
async fn a_commit_after_the_opposite_was_decided_says_so() {
    let broker = Broker::start().await;
    let client = broker.client().await;
    let prepared = client.transaction("shop").send(one_message()).prepare().await.unwrap();
    broker.with(|state| state.decisions.push(("shop".to_owned(), "rollback")));
    assert_eq!(prepared.commit().await.unwrap_err().code(), "already_decided");
    assert_eq!(prepared.rollback().await, Ok(()));
}

#[tokio::test]
async fn questions_are_answered_also_after_the_stream_broke() {
    let broker = Broker::start().await;
    let client = broker.client().await;
    let checker = client.checker("shop", |check| async move {
        match check.transaction.as_str() {
            "stored" => Decision::Commit,
            "not stored" => Decision::Rollback,
            "panics" => panic!("nobody knows"),
            _ => Decision::Unknown,
        }
    });
    let ask = |transaction: &str| {
        let check = v1::Check { transaction: transaction.to_owned(), ..v1::Check::default() };
        broker.with(|state| state.checks.push_back(check));
    };
    // The empty one breaks the stream.
    for transaction in ["panics", "unclear", "stored", "", "not stored"] {
        ask(transaction);
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        // Dropped by a test that has failed.
        let _dropped = stopped.await.is_err();
    };
    let running = tokio::task::spawn(async move { checker.run_until(shutdown).await });
    let are_decided = |state: &mut fake::State| (state.decisions.len() >= 2).then_some(());
    broker.until("two decisions", are_decided).await;
    stop.send(()).unwrap();
    timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
    let mut told = decisions(&broker);
    told.sort();
    let expected = [("not stored".to_owned(), "rollback"), ("stored".to_owned(), "commit")];
    assert_eq!(told, expected);
}
