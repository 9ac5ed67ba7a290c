//! A shop that closes orders which are not paid in time.
//!
//! Every order sends a message to its own future. Paying cancels it; what is not cancelled arrives
//! and closes the order. `cargo run -p punctual-client --example close_unpaid_orders`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example shows what it does"
)]

use std::error::Error;
use std::time::Duration;

use punctual_client::{Cancel, Client, Message};
use tokio::sync::mpsc;

const TIME_TO_PAY: Duration = Duration::from_secs(4);

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("PUNCTUAL_SERVER");
    let client = Client::connect(server.as_deref().unwrap_or("http://127.0.0.1:7070")).await?;
    let producer = client.producer();

    for order in 1..=3 {
        let deadline = Message::new(order.to_string()).id(format!("unpaid-{order}"));
        producer.send_delayed("unpaid-orders", deadline, TIME_TO_PAY).await?;
    }
    println!("orders 1, 2 and 3 are placed");

    match producer.cancel_own("unpaid-orders", "unpaid-2").await? {
        Cancel::Cancelled => println!("order 2 is paid"),
        other => println!("order 2 is paid too late: {other:?}"),
    }

    let (close, mut closed) = mpsc::channel(10);
    let closing = client.consumer("unpaid-orders", "shop").start(move |delivery| {
        let close = close.clone();
        async move {
            close.send(delivery.text()?.to_owned()).await?;
            Ok(())
        }
    });
    let mut orders = vec![closed.recv().await, closed.recv().await];
    orders.sort();
    for order in orders.into_iter().flatten() {
        println!("order {order} is closed");
    }
    closing.stop().await?;

    let late = producer.cancel_own("unpaid-orders", "unpaid-1").await?;
    println!("order 1 is paid too late: {late:?}");
    Ok(())
}
