//! A worker: handles jobs, gives back what failed, and ends in order when it is told to.
//!
//! `cargo run -p punctual-client --example worker`, then send jobs with
//! `punctual send jobs 'print hello'`. Ends by itself on Ctrl-C or a TERM signal.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example shows what it does"
)]

use std::error::Error;
use std::time::Duration;

use punctual_client::{Client, Delivery, Failure, Reject, Retry};
use tokio::signal::unix::{SignalKind, signal};

async fn handle(delivery: Delivery) -> Result<(), Failure> {
    match delivery.text()?.split_once(' ') {
        Some(("print", words)) => println!("{words}"),
        Some(("sleep", seconds)) => {
            println!("sleeping");
            tokio::time::sleep(Duration::from_millis(seconds.parse::<u64>()? * 1000)).await;
            println!("slept");
        }
        Some(("later", words)) if delivery.attempt == 1 => {
            println!("not now: {words}");
            return Err(Retry::after(Duration::from_millis(100)).because("not now").into());
        }
        Some(("later", words)) => println!("now: {words}"),
        _ => return Err(Reject::new("no such job").into()),
    }
    Ok(())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("PUNCTUAL_SERVER");
    let client = Client::connect(server.as_deref().unwrap_or("http://127.0.0.1:7070")).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    println!("working");
    client.consumer("jobs", "workers").concurrency(8).run_until(shutdown, handle).await?;
    println!("done");
    Ok(())
}
