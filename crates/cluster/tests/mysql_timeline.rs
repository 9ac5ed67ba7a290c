//! A timeline of slots in a real MariaDB keeps the contract of every timeline.

mod mysql_support;
mod timeline_suite;
mod timeline_support;

use mysql_support::Server;

#[test]
fn a_timeline_in_a_database_is_a_timeline() {
    let Some(server) = Server::shared() else { return };
    timeline_suite::timeline(async || server.store().await);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(server.tidy());
}
