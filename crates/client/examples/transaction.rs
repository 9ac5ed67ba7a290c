//! An order service whose messages go out if and only if the order is stored.
//!
//! Orders are stored in memory here. The first is stored, the second is not, and the third is stored
//! by a service that stops before it could say so: the broker asks, and the checker knows.
//! `cargo run -p punctual-client --example transaction`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example shows what it does"
)]

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_client::{Client, Decision, Message, RunError};

#[derive(Clone, Default)]
struct Orders(Arc<Mutex<HashSet<String>>>);

impl Orders {
    fn store(&self, order: &str) -> Result<(), &'static str> {
        if order == "order-2" {
            return Err("out of stock");
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(order.to_owned());
        Ok(())
    }

    fn is_stored(&self, order: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(order)
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("PUNCTUAL_SERVER");
    let client = Client::connect(server.as_deref().unwrap_or("http://127.0.0.1:7070")).await?;
    let orders = Orders::default();

    for order in ["order-1", "order-2"] {
        let message = Message::new(order).id(order);
        let storing = client.transaction("order-service").send([("placed-orders", message)]);
        match storing.run(|| async { orders.store(order) }).await {
            Ok(()) => println!("{order}: committed"),
            Err(RunError::RolledBack(reason)) => println!("{order}: rolled back, {reason}"),
            Err(error) => return Err(error.into()),
        }
    }

    let message = Message::new("order-3").id("order-3");
    let storing = client.transaction("order-service").send([("placed-orders", message)]);
    let prepared = storing.first_check(Duration::from_secs(1)).prepare().await?;
    orders.store("order-3")?;
    drop(prepared);
    println!("order-3: the service stops before the commit");

    let checker = client.checker("order-service", move |check| {
        let orders = orders.clone();
        async move {
            let order = check.messages.iter().find_map(|message| message.own_id.as_deref());
            match order.is_some_and(|order| orders.is_stored(order)) {
                true => Decision::Commit,
                false => Decision::Rollback,
            }
        }
    });
    let warehouse = client.consumer("placed-orders", "warehouse");
    let packing = async {
        let mut packed = 0;
        while packed < 2 {
            for delivery in warehouse.receive().await? {
                println!("the warehouse packs {}", delivery.text()?);
                warehouse.ack([&delivery]).await?;
                packed += 1;
            }
        }
        Ok::<(), Box<dyn Error>>(())
    };
    tokio::select! {
        packed = packing => packed,
        ended = checker.run() => ended.map_err(Box::from),
    }
}
