//! Documents: changed only by whom has read them, and heard of by everybody.

use bytes::Bytes;
use punctual_cluster::store::{Document, Documents};

use super::text;

fn content(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

async fn put<D: Documents>(store: &D, name: &str, expected: u64, body: &str) -> Option<u64> {
    store.put("topic", text(name), expected, content(body)).await.unwrap()
}

async fn changed<D: Documents>(store: &D, revision: u64) -> (Vec<Document>, u64) {
    store.changed_since("topic", revision).await.unwrap()
}

pub(super) async fn a_document_is_changed_by_whom_has_read_it<D: Documents>(store: &D) {
    assert_eq!(changed(store, 0).await, (Vec::new(), 0));
    assert_eq!(put(store, "a", 5, "x").await, None, "it never was");
    let first = put(store, "a", 0, "one").await.expect("nobody was first");
    assert_eq!(put(store, "a", 0, "again").await, None);
    let second = put(store, "a", first, "two").await.expect("as it was read");
    assert!(second > first);
    assert_eq!(put(store, "a", first, "stale").await, None);
    let expected = Document { name: text("a"), revision: second, content: content("two") };
    assert_eq!(changed(store, 0).await, (vec![expected], second));
    let every_byte: Bytes = (0..=u8::MAX).cycle().take(100_000).collect();
    let put = store.put("topic", text("ä ' \\ %"), 0, Some(every_byte.clone()));
    let revision = put.await.unwrap().expect("nobody was first");
    let (found, _) = changed(store, second).await;
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].name, found[0].revision), ("ä ' \\ %", revision));
    assert!(found[0].content.as_ref() == Some(&every_byte), "byte for byte");
    let empty = store.put("topic", text("empty"), 0, Some(Bytes::new()));
    assert!(empty.await.unwrap().is_some(), "nothing is a content too");
}

pub(super) async fn changes_are_told_in_order_and_deletions_too<D: Documents>(store: &D) {
    let a = put(store, "a", 0, "1").await.unwrap();
    let b = put(store, "b", 0, "1").await.unwrap();
    let c = put(store, "c", 0, "1").await.unwrap();
    assert!(a < b && b < c, "no two changes have the same revision");
    let (all, upto) = changed(store, 0).await;
    let mut names: Vec<&str> = all.iter().map(|document| &*document.name).collect();
    names.sort_unstable();
    assert_eq!((names, upto), (vec!["a", "b", "c"], c));
    assert_eq!(changed(store, upto).await, (Vec::new(), upto));
    let gone = store.put("topic", text("a"), a, None).await.unwrap().expect("as it was read");
    let (news, upto) = changed(store, upto).await;
    assert_eq!(news, [Document { name: text("a"), revision: gone, content: None }]);
    assert_eq!(upto, gone);
    assert_eq!(put(store, "a", a, "stale").await, None);
    let back = put(store, "a", gone, "2").await.expect("who knows that it was deleted may put it");
    assert!(back > gone);
}

pub(super) async fn kinds_are_apart<D: Documents>(store: &D) {
    put(store, "a", 0, "topic").await.unwrap();
    assert_eq!(store.changed_since("app", 0).await.unwrap(), (Vec::new(), 0));
    let other = store.put("app", text("a"), 0, content("app")).await.unwrap();
    assert!(other.is_some(), "the name is free in another kind");
    let (found, _) = changed(store, 0).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].content, content("topic"));
}

pub(super) async fn of_concurrent_changes_one_wins<D: Documents>(store: D) {
    let mut revision = 0;
    for round in 0..10 {
        let write = || store.put("topic", text("a"), revision, content(&format!("{round}")));
        let (one, two, three) = tokio::join!(write(), write(), write());
        let outcomes = [one.unwrap(), two.unwrap(), three.unwrap()];
        let won: Vec<u64> = outcomes.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        revision = won[0];
    }
    let write = |name: &str| store.put("topic", text(name), 0, content(name));
    let outcomes = tokio::join!(write("b"), write("c"), write("d"));
    for outcome in [outcomes.0, outcomes.1, outcomes.2] {
        assert!(outcome.unwrap().is_some(), "different documents do not stand in each other's way");
    }
    let (found, _) = changed(&store, revision).await;
    assert_eq!(found.len(), 3, "each is told, whoever was quicker");
}
