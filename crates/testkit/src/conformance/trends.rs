//! Figures that outlive a process.

use std::sync::Arc;

use bytes::Bytes;
use futures_executor::block_on;
use punctual_model::Timestamp;
use punctual_model::ports::{POINT_SPAN, StoredPoint, Trends};

use super::START;

/// Runs the suite; each case has a store of its own that holds nothing yet.
///
/// # Panics
/// When a promise is not kept.
pub fn trends<T: Trends>(fresh: impl Fn() -> T) {
    totals_are_replaced_and_all_nodes_are_told(&fresh());
    points_are_replaced_and_told_in_order(&fresh());
    old_points_go(&fresh());
    a_large_point_comes_back_as_it_was(&fresh());
}

fn text(content: &str) -> Bytes {
    Bytes::copy_from_slice(content.as_bytes())
}

/// The start of the ten minutes that so many ten minutes after the start of the suite are in.
fn at(number: u64) -> Timestamp {
    let span = POINT_SPAN.as_millis();
    let start = START.as_millis() - START.as_millis() % span;
    Timestamp::from_millis_saturating(start + number * span)
}

fn point(number: u64, node: &str, content: &str) -> StoredPoint {
    StoredPoint { at: at(number), node: node.into(), content: text(content) }
}

fn put<T: Trends>(store: &T, point: &StoredPoint) {
    block_on(store.put_point(point.clone())).expect("a point is taken");
}

fn points<T: Trends>(store: &T, from: u64, until: u64) -> Vec<StoredPoint> {
    block_on(store.points(at(from), at(until))).expect("points are told")
}

fn totals_are_replaced_and_all_nodes_are_told<T: Trends>(store: &T) {
    let told = || block_on(store.totals()).expect("totals are told");
    assert_eq!(told(), []);
    let write = |node: &str, content: &str| {
        block_on(store.put_totals(node.into(), text(content))).expect("totals are taken");
    };
    write("b", "{\"n\":1}");
    write("a.x-1_y", "{\"text\":\"ä ' \\\\ % \\\" ,\\\"point\\\":\"}");
    write("b", "{\"n\":2}");
    let expected: Vec<(Arc<str>, Bytes)> = vec![
        ("a.x-1_y".into(), text("{\"text\":\"ä ' \\\\ % \\\" ,\\\"point\\\":\"}")),
        ("b".into(), text("{\"n\":2}")),
    ];
    assert_eq!(told(), expected);
}

fn points_are_replaced_and_told_in_order<T: Trends>(store: &T) {
    assert_eq!(points(store, 0, 1000), []);
    let late = point(150, "a", "{\"n\":1}");
    let odd = point(2, "b", "{\"text\":\"ä ' \\\\ % \\\" ,\\\"point\\\":\"}");
    let first = point(2, "a", "{\"n\":2}");
    for point in [&late, &odd, &first] {
        put(store, point);
    }
    let all = [first, odd.clone(), late.clone()];
    assert_eq!(points(store, 0, 1000), all);
    assert_eq!(points(store, 2, 150), all[..2], "from is included, until is not");
    assert_eq!(points(store, 3, 151), all[2..]);
    let again = point(2, "a", "{\"n\":3}");
    put(store, &again);
    assert_eq!(points(store, 0, 1000), [again, odd, late]);
}

fn old_points_go<T: Trends>(store: &T) {
    let day = 144;
    let all = [0, 2 * day, 4 * day, 9 * day].map(|number| point(number, "a", "{}"));
    all.iter().for_each(|point| put(store, point));
    block_on(store.forget(at(4 * day))).expect("points are forgotten");
    let left = points(store, 0, 10 * day);
    assert!(!left.contains(&all[0]), "a day and more before");
    assert_eq!(left[left.len() - 2..], all[2..], "nothing that is to be kept");
    block_on(store.forget(at(4 * day))).expect("again");
    assert_eq!(points(store, 4 * day, 10 * day), all[2..]);
}

fn a_large_point_comes_back_as_it_was<T: Trends>(store: &T) {
    let content = format!("{{\"text\":\"{}\"}}", "0123456789".repeat(20_000));
    let large = point(1, "a", &content);
    put(store, &large);
    assert!(points(store, 0, 10) == [large], "byte for byte");
}
