//! Figures of nodes in real databases, by the contract of the seam.

#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod cassandra_support;
mod mysql_support;

use std::cell::Cell;

use punctual_cluster::cassandra::CassandraStore;
use punctual_testkit::{conformance, services};

#[test]
fn figures_in_mariadb_keep_to_the_contract() {
    let runtime = cassandra_support::runtime();
    let Some(server) = mysql_support::Server::shared() else { return };
    let _within = runtime.enter();
    conformance::trends(|| runtime.block_on(server.store()));
    runtime.block_on(server.tidy());
}

#[test]
fn figures_in_cassandra_keep_to_the_contract() {
    let runtime = cassandra_support::runtime();
    let Some(address) = services::cassandra() else { return };
    let _within = runtime.enter();
    let number = Cell::new(0);
    conformance::trends(|| {
        number.set(number.get() + 1);
        let keyspace = cassandra_support::keyspace(&format!("trends{}", number.get()));
        let options = cassandra_support::options(address, &keyspace);
        runtime.block_on(CassandraStore::open(options)).expect("a store")
    });
}
