//! Sends one message for now and one for later, and receives both.
//!
//! `cargo run -p punctual-client --example ten_lines`, with a broker at `PUNCTUAL_SERVER` or at
//! `http://127.0.0.1:7070`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example shows what it does"
)]

use std::error::Error;
use std::time::Duration;

use punctual_client::{Client, Message};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("PUNCTUAL_SERVER");
    let client = Client::connect(server.as_deref().unwrap_or("http://127.0.0.1:7070")).await?;

    let producer = client.producer();
    producer.send("greetings", Message::new("hello")).await?;
    producer.send_delayed("greetings", Message::new("later"), Duration::from_secs(2)).await?;

    let consumer = client.consumer("greetings", "printers");
    for _ in 0..2 {
        for delivery in consumer.receive().await? {
            println!("received: {}", delivery.text()?);
            consumer.ack([&delivery]).await?;
        }
    }
    Ok(())
}
