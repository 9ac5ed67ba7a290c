//! Do topics and groups over real databases keep to their contract, and do nodes that race for them
//! agree?

#![expect(clippy::unwrap_used, reason = "a test ends with what is wrong")]

mod cassandra_support;
mod mysql_support;

use std::sync::Arc;

use parking_lot::Mutex;
use punctual_cluster::catalogue::{SharedGroups, SharedTopics};
use punctual_cluster::store::Documents;
use punctual_model::group::Start;
use punctual_model::ports::{Groups, Topics};
use punctual_model::{GroupName, GroupSettings, TopicKind, TopicName, TopicSettings};
use punctual_testkit::conformance;
use punctual_testkit::reference::Reference;
use tokio::runtime::Runtime;

use cassandra_support::runtime;

fn open(runtime: &Runtime, documents: impl Documents) -> Arc<SharedTopics> {
    let opening = SharedTopics::open(Arc::new(documents), runtime.handle().clone());
    runtime.block_on(opening).unwrap()
}

fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

/// Two nodes make the same topics and groups at the same time, and remove some again.
fn nodes_that_race_agree<D: Documents + Clone>(runtime: &Runtime, store: D) {
    let nodes = [open(runtime, store.clone()), open(runtime, store)];
    let settings = || TopicSettings { partitions: 2, ..TopicSettings::default() };
    let ids = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, node) in nodes.iter().enumerate() {
            let ids = &ids;
            scope.spawn(move || {
                for round in 0..4 {
                    node.put(&name(&format!("both-{round}")), settings()).unwrap();
                    // Made, deleted and made again under the same name.
                    let own = name(&format!("own-{number}-{}", round / 2));
                    ids.lock().push(node.put(&own, settings()).unwrap().id);
                    if round % 2 == 0 {
                        assert_eq!(node.delete(&own), Ok(true));
                    }
                    let of = node.by_name(&name("both-0")).unwrap().id;
                    let groups = SharedGroups::new(Arc::clone(node), Arc::new(Reference::new()));
                    let group = GroupName::new(&format!("group-{round}")).unwrap();
                    let (settings, start) = (GroupSettings::default(), Start::Earliest);
                    groups.put(of, &group, settings, start).unwrap();
                }
            });
        }
    });
    let mut ids = ids.into_inner();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8, "a number is given once");
    for node in &nodes {
        runtime.block_on(node.refresh()).unwrap();
    }
    let [here, there] = &nodes;
    assert_eq!(here.list(), there.list());
    // Four of both, two of each, and two of each of the four groups.
    assert_eq!(here.list().len(), 4 + 2 * 2 + 4 * 2);
    let plain = here.list().iter().filter(|topic| topic.kind == TopicKind::Plain).count();
    assert_eq!(plain, 4 + 2 * 2);
    let groups = nodes
        .each_ref()
        .map(|node| SharedGroups::new(Arc::clone(node), Arc::new(Reference::new())).list());
    assert_eq!((groups[0].len(), &groups[0]), (4, &groups[1]));
}

#[test]
fn topics_in_mariadb_keep_to_the_contract() {
    let runtime = runtime();
    let Some(server) = mysql_support::Server::shared() else { return };
    conformance::catalogue(|| open(&runtime, runtime.block_on(server.store())));
    runtime.block_on(server.tidy());
}

#[test]
fn nodes_that_race_in_mariadb_agree() {
    let runtime = runtime();
    let Some(server) = mysql_support::Server::shared() else { return };
    nodes_that_race_agree(&runtime, runtime.block_on(server.store()));
    runtime.block_on(server.tidy());
}

#[test]
fn topics_in_cassandra_keep_to_the_contract() {
    let runtime = runtime();
    let Some(store) = runtime.block_on(cassandra_support::store()) else { return };
    conformance::catalogue(|| open(&runtime, cassandra_support::Fresh::of(&store, 1)));
}

#[test]
fn nodes_that_race_in_cassandra_agree() {
    let runtime = runtime();
    let Some(store) = runtime.block_on(cassandra_support::store()) else { return };
    nodes_that_race_agree(&runtime, cassandra_support::Fresh::of(&store, 1));
}
