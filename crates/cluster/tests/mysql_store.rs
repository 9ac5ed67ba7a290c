//! A real MariaDB keeps slots and documents as every store does.

mod mysql_support;
mod store_support;

use mysql_support::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_keeps_slots() {
    let Some(server) = Server::shared() else { return };
    Box::pin(store_support::slot_store(async || server.store().await)).await;
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_keeps_documents() {
    let Some(server) = Server::shared() else { return };
    Box::pin(store_support::documents(async || server.store().await)).await;
    server.tidy().await;
}
