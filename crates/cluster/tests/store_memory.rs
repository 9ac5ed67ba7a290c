//! The store of the tests keeps the contract that the databases keep.

mod store_support;

use punctual_cluster::store::memory::Memory;

#[tokio::test]
async fn the_store_in_memory_keeps_slots() {
    store_support::slot_store(async || Memory::default()).await;
}

#[tokio::test]
async fn the_store_in_memory_keeps_documents() {
    store_support::documents(async || Memory::default()).await;
}
