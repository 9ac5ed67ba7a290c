//! The Kafka listener: how fast records go out beside the fastest that this machine sends a file
//! over loopback, and how fast they come in, without and with a delay.
//!
//! The client is as lean as can be and counts into every figure: frames are made before, and of an
//! answer it looks at what tells whether it is right. For going out, a bare sender in a process of
//! its own sends the very file that the server sends from, to the same reader; both take turns, so
//! that whatever else the machine does hits both.

mod fetch;
mod link;
mod produce;
mod sender;

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::args::{Common, DurabilityWord, KafkaOptions, KafkaPart};
use crate::measure::memory_of;
use crate::report::{Report, Table};
use crate::rig::Place;
use crate::server::{Connection, Server};

pub(crate) use self::sender::run as send_file;

/// The topic of all parts.
const TOPIC: &str = "bench";

pub(crate) fn run(common: &Common, options: &KafkaOptions) -> Result<()> {
    let settings = json!({
        "connections": options.connections, "under_way": options.under_way,
        "seconds_each": options.secs, "rounds": options.rounds,
        "records": options.records, "batches": options.batches,
        "fetches": options.fetches, "log_megabytes": options.megabytes,
    });
    let mut report = Report::new("kafka", common, settings);
    if options.part.includes(KafkaPart::Fetch) {
        with_server(common, options, |server, dir| fetch::run(options, server, dir, &mut report))?;
    }
    if options.part.includes(KafkaPart::Produce) {
        let mut table = produce::table("produce");
        for durability in [DurabilityWord::Fsync, DurabilityWord::Os] {
            let common = Common { durability, ..common.clone() };
            for shape in produce::shapes(options) {
                with_server(&common, options, |server, _| {
                    produce::run(&common, options, server, &shape, (&mut table, &mut report))
                })?;
            }
        }
        report.table(table);
    }
    if options.part.includes(KafkaPart::Delayed) {
        let mut table = produce::table("produce with a delay");
        for shape in produce::delayed_shapes(options) {
            with_server(common, options, |server, _| {
                produce::run(common, options, server, &shape, (&mut table, &mut report))
            })?;
        }
        report.table(table);
    }
    report.finish(common)
}

/// A fresh server, and the end of it.
fn with_server(
    common: &Common,
    options: &KafkaOptions,
    work: impl FnOnce(&Server, &Path) -> Result<()>,
) -> Result<()> {
    let place = Place::fresh(common, 8 << 30)?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let partitions = json!({ "partitions": options.connections });
    let worked = Connection::open(server.address)
        .and_then(|mut http| http.call_json("PUT", &format!("/v1/topics/{TOPIC}"), &partitions))
        .and_then(|()| work(&server, place.path()));
    let stopped = server.stop();
    worked?;
    stopped?;
    place.clear()
}

/// What the server holds, as one row for all parts.
fn memory(server: &Server) -> f64 {
    memory_of(server.pid()).peak as f64 / 1e6
}

/// The middle one of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A table of rates, with the columns that all parts have.
fn rates(title: &str, columns: &[&str]) -> Table {
    Table::new(title, columns)
}
