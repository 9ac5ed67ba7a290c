//! Databases of a real MariaDB, each for one store alone, dropped in the end.

#![expect(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several tests, each of which uses a part; a failed step panics"
)]

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use punctual_cluster::mysql::{MysqlOptions, MysqlStore};
use punctual_model::{Basis, Entry, Key, Message, MessageId, Partition, Timestamp, TopicId};
use punctual_testkit::services;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

/// A server and the databases that were made in it.
pub(crate) struct Server {
    address: SocketAddr,
    made: Mutex<Vec<String>>,
}

impl Server {
    /// The one that all tests share; nothing where it cannot be had.
    pub(crate) fn shared() -> Option<Self> {
        services::mariadb().map(Self::at)
    }

    /// The one at that address.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, made: Mutex::default() }
    }

    /// A connection without a database.
    pub(crate) async fn connect(&self) -> MySqlConnection {
        let options = MySqlConnectOptions::new().username("root").host("127.0.0.1");
        options.port(self.address.port()).connect().await.unwrap()
    }

    /// Options for a new, empty database.
    pub(crate) async fn database(&self) -> MysqlOptions {
        let mut number = [0; 8];
        getrandom::fill(&mut number).unwrap();
        let name = format!("punctual_test_{:016x}", u64::from_le_bytes(number));
        let mut connection = self.connect().await;
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        self.made.lock().unwrap().push(name.clone());
        let mut options = MysqlOptions::new(format!("mysql://{}/{name}", self.address));
        options.user = Some("root".to_owned());
        // A machine under load may be slow.
        options.deadline = Duration::from_secs(60);
        options
    }

    /// A store in a new, empty database.
    pub(crate) async fn store(&self) -> MysqlStore {
        MysqlStore::open(self.database().await).await.unwrap()
    }

    /// Drops what was made.
    pub(crate) async fn tidy(self) {
        let mut connection = self.connect().await;
        for name in self.made.into_inner().unwrap() {
            connection.execute(AssertSqlSafe(format!("DROP DATABASE {name}"))).await.unwrap();
        }
    }
}

/// A connection to the database of these options.
pub(crate) async fn connect(options: &MysqlOptions) -> MySqlConnection {
    let connect: MySqlConnectOptions = options.url.parse().unwrap();
    connect.username("root").connect().await.unwrap()
}

/// The first column of the first row that a statement answers.
pub(crate) async fn number(connection: &mut MySqlConnection, statement: &str) -> i64 {
    let row = connection.fetch_one(AssertSqlSafe(statement.to_owned())).await.unwrap();
    row.try_get(0).unwrap()
}

/// A message of the first topic.
pub(crate) fn entry(due: Timestamp) -> Entry {
    Entry {
        topic: TopicId::new(1).unwrap(),
        partition: Partition::new(0).unwrap(),
        due,
        basis: Basis::Delay,
        message: Message { body: Bytes::from_static(&[7; 100]), ..Message::default() },
        extra: None,
    }
}

/// The id of such a message that came to stand there.
pub(crate) fn id(key: Key) -> MessageId {
    let Entry { topic, partition, .. } = entry(key.due);
    MessageId { key, topic, partition }
}
