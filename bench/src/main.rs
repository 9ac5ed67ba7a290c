//! Load: one program that drives the store in process and the server over loopback.
//!
//! Each scenario is a subcommand, bounded in count and time. It prints what it found, and leaves
//! the same figures as JSON and as a picture.

mod args;
mod random;
mod measure;
mod rig;
mod load;
mod report;
mod picture;
mod schedule;
mod restart;
mod lateness;
mod herd;
mod cancel;
mod list;
mod own_ids;
mod server;
mod http;
mod grpc;
mod sdk;
mod races;
mod consume;
mod end_to_end;
mod groups;
mod retries;
mod acked_set;
mod attacks;
mod hostile;
mod kafka;
mod cluster;
#[cfg(feature = "cluster")]
mod store;
mod quick;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Scenario};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Arguments { common, scenario } = Arguments::parse();
    let outcome = match scenario {
        Scenario::Schedule(options) => schedule::run(&common, &options),
        Scenario::Restart(options) => restart::run(&common, &options),
        Scenario::RestartFill(options) => restart::fill(&common, &options),
        Scenario::RestartProbe(options) => restart::probe(&common, &options),
        Scenario::Lateness(options) => lateness::run(&common, &options),
        Scenario::Herd(options) => herd::run(&common, &options),
        Scenario::Cancel(options) => cancel::run(&common, &options),
        Scenario::List(options) => list::run(&common, &options),
        Scenario::OwnIds(options) => own_ids::run(&common, &options),
        Scenario::Http(options) => http::run(&common, &options),
        Scenario::Grpc(options) => grpc::run(&common, &options),
        Scenario::Sdk(options) => sdk::run(&common, &options),
        Scenario::Races(options) => races::run(&common, &options),
        Scenario::Consume(options) => consume::run(&common, &options),
        Scenario::EndToEnd(options) => end_to_end::run(&common, &options),
        Scenario::Groups(options) => groups::run(&common, &options),
        Scenario::Retries(options) => retries::run(&common, &options),
        Scenario::AckedSet(options) => acked_set::run(&common, &options),
        Scenario::Hostile(options) => hostile::run(&common, &options),
        Scenario::Kafka(options) => kafka::run(&common, &options),
        Scenario::SendFile(options) => kafka::send_file(&options),
        Scenario::Cluster(options) => cluster::run(&common, &options),
        #[cfg(feature = "cluster")]
        Scenario::Store(options) => store::run(&common, &options),
        Scenario::All(options) => quick::run(&common, &options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
