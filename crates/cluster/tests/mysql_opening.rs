//! Opening a database: by several nodes at once, with tables of another version, with settings by which
//! messages may be lost.

mod mysql_support;

use mysql_support::{Server, connect, number};
use punctual_cluster::mysql::{MysqlOptions, MysqlStore, OpenError};
use punctual_cluster::store::{Slot, SlotStore, Tenure};
use punctual_testkit::services::{Private, Service};
use sqlx::{AssertSqlSafe, Executor};

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_may_start_at_once() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..3 {
        nodes.spawn(MysqlStore::open(options.clone()));
    }
    for (slot, store) in (1..).zip(nodes.join_all().await) {
        let store = store.unwrap();
        assert!(store.take(Tenure { slot: Slot(slot), term: 1 }).await.unwrap().is_some());
    }
    let mut connection = connect(&options).await;
    let versions = "SELECT COUNT(*) FROM punctual_schema WHERE success";
    assert_eq!(number(&mut connection, versions).await, 2, "each migration ran once");
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_has_begun_is_finished_by_the_next() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    MysqlStore::open(options.clone()).await.unwrap().close().await;
    let mut connection = connect(&options).await;
    connection.execute("DROP TABLE punctual_documents").await.unwrap();
    connection.execute("UPDATE punctual_schema SET success = FALSE").await.unwrap();
    let store = MysqlStore::open(options).await.unwrap();
    assert!(store.take(Tenure { slot: Slot(1), term: 1 }).await.unwrap().is_some());
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM punctual_documents").await, 0);
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_newer_version_are_left_alone() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    MysqlStore::open(options.clone()).await.unwrap().close().await;
    let mut connection = connect(&options).await;
    let newer = "INSERT INTO punctual_schema (version, description, success, checksum, execution_time) \
        VALUES (99, 'later', TRUE, '', 0)";
    connection.execute(newer).await.unwrap();
    let refused = MysqlStore::open(options).await.unwrap_err();
    assert_eq!(refused, OpenError::SchemaNewer { found: 99, known: 2 });
    assert!(refused.to_string().contains("start the newer program"), "{refused}");
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_told() {
    let Some(server) = Server::shared() else { return };
    let mut options = server.database().await;
    options.url.push_str("_of_nobody");
    let refused = MysqlStore::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, OpenError::NoDatabase { .. }), "{refused}");
    assert!(refused.to_string().contains("_of_nobody`; GRANT ALL ON"), "{refused}");
    options.password = Some("wrong".to_owned());
    let refused = MysqlStore::open(options).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unreachable(_)), "{refused}");
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_about_a_missing_database_makes_one_that_can_be_used() {
    let Some(server) = Server::shared() else { return };
    let mut options = server.database().await;
    let user = options.url.rsplit_once("punctual_test_").unwrap().1.to_owned();
    let mut connection = server.connect().await;
    let mut run = async |text: String| connection.execute(AssertSqlSafe(text)).await.map(drop);
    run(format!("CREATE USER '{user}' IDENTIFIED BY 'a password'")).await.unwrap();
    options.url.push_str("_of_its_own");
    (options.user, options.password) = (Some(user.clone()), Some("a password".to_owned()));
    let refused = MysqlStore::open(options.clone()).await.unwrap_err();
    let OpenError::NoDatabase { statements, .. } = &refused else { panic!("{refused}") };
    for statement in statements.split_inclusive(';') {
        run(statement.to_owned()).await.unwrap();
    }
    // A user with no other right than these makes the tables and owns slots.
    let store = MysqlStore::open(options).await.unwrap();
    assert!(store.take(Tenure { slot: Slot(1), term: 1 }).await.unwrap().is_some());
    store.close().await;
    run(format!("DROP DATABASE punctual_test_{user}_of_its_own")).await.unwrap();
    run(format!("DROP USER '{user}'")).await.unwrap();
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_settings_of_a_server_are_refused_unless_named() {
    let directory = tempfile::tempdir().unwrap();
    let Some(private) = Private::start(Service::MariaDb, directory.path()) else { return };
    let server = Server::at(private.address());
    let options = server.database().await;
    let mut connection = server.connect().await;
    let mut set = async |setting: &str, value: &str| {
        let text = format!("SET GLOBAL {setting} = {value}");
        connection.execute(AssertSqlSafe(text)).await.unwrap();
    };
    for (setting, unsafely, safely) in [
        ("innodb_flush_log_at_trx_commit", "2", "1"),
        ("default_storage_engine", "MyISAM", "InnoDB"),
    ] {
        set(setting, unsafely).await;
        let refused = MysqlStore::open(options.clone()).await.unwrap_err();
        let text = refused.to_string();
        for part in [setting, unsafely, "set it to", "timeline.allow_unsafe"] {
            assert!(text.contains(part), "{text}");
        }
        let mut named = options.clone();
        named.allow_unsafe = vec![setting.to_owned()];
        MysqlStore::open(named).await.unwrap().close().await;
        set(setting, safely).await;
    }
    set("read_only", "ON").await;
    let refused = MysqlStore::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unfit { setting: "read_only", .. }), "{refused}");
    set("read_only", "OFF").await;
    set("max_allowed_packet", "1048576").await;
    let refused = MysqlStore::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unfit { setting: "max_allowed_packet", .. }), "{refused}");
    let small = MysqlOptions { body_bytes_max: 64 << 10, ..options };
    MysqlStore::open(small).await.unwrap();
}
