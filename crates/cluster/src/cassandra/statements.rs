//! Every statement that is sent while a node runs, prepared once.
//!
//! Each reads or writes one partition, named in full by its condition; none asks the server to
//! filter. That is also a test of this file.

use scylla::client::session::Session;
use scylla::frame::types::{Consistency as Level, SerialConsistency};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;

use super::{Consistency, OpenError};

/// Rows of a page of small rows.
const PAGE_ROWS: i32 = 1000;

/// How a statement may be treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    Read,
    /// Reads what the last lightweight transaction left, one that was interrupted included.
    Latest,
    Write,
    Decide,
    Add,
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident: $nature:ident = $text:expr;)+) => {
        /// The prepared statements.
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: PreparedStatement,)+
        }

        /// The texts, for tests.
        #[cfg(test)]
        const TEXTS: &[&str] = &[$($text),+];

        impl Statements {
            /// Prepares all of them.
            pub(super) async fn prepare(
                session: &Session,
                keyspace: &str,
                consistency: Consistency,
            ) -> Result<Self, OpenError> {
                Ok(Self {
                    $($name: prepare(session, keyspace, consistency, Nature::$nature, $text).await?,)+
                })
            }
        }
    };
}

statements! {
    slot: Read = "SELECT DISTINCT slot, term, claimed_until, ended_message, ended_retry, \
        counters_until, stamps_until FROM KS.slot WHERE slot = ?";
    slot_latest: Latest = "SELECT DISTINCT slot, term, claimed_until, ended_message, ended_retry, \
        counters_until, stamps_until FROM KS.slot WHERE slot = ?";
    term: Read = "SELECT DISTINCT slot, term FROM KS.slot WHERE slot = ?";
    take: Decide = "UPDATE KS.slot SET term = ?, stamps_until = ? WHERE slot = ? IF term = ?";
    keep: Decide = "UPDATE KS.slot SET claimed_until = ?, ended_message = ?, ended_retry = ?, \
        counters_until = ?, stamps_until = ? WHERE slot = ? IF term = ?";
    stamps: Decide = "UPDATE KS.slot SET stamps_until = ? WHERE slot = ? IF term = ?";
    intend: Decide = "UPDATE KS.slot SET content = ? WHERE slot = ? AND part = ? IF term = ?";
    intents: Read = "SELECT part, content FROM KS.slot WHERE slot = ?";
    put: Write = "INSERT INTO KS.entry (slot, lane, bucket, due, sequence, topic, part, kind, \
        message_key, content, name, first_due, first_sequence) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    put_new: Write = "INSERT INTO KS.entry (slot, lane, bucket, due, sequence, topic, part, content) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    end: Write = "UPDATE KS.entry USING TIMESTAMP ? SET state = ?, ended_at = ?, content = null \
        WHERE slot = ? AND lane = ? AND bucket = ? AND due = ? AND sequence = ?";
    end_keeping: Write = "UPDATE KS.entry USING TIMESTAMP ? SET state = ?, ended_at = ? \
        WHERE slot = ? AND lane = ? AND bucket = ? AND due = ? AND sequence = ?";
    remove: Write = "DELETE FROM KS.entry USING TIMESTAMP ? \
        WHERE slot = ? AND lane = ? AND bucket = ? AND due = ? AND sequence = ?";
    drop: Write = "DELETE FROM KS.entry USING TIMESTAMP ? \
        WHERE slot = ? AND lane = ? AND bucket = ?";
    get: Read = "SELECT due, sequence, topic, part, kind, content, state, ended_at, first_due, \
        first_sequence FROM KS.entry \
        WHERE slot = ? AND lane = ? AND bucket = ? AND due = ? AND sequence = ?";
    page: Read = "SELECT due, sequence, topic, part, kind, content, state, ended_at, first_due, \
        first_sequence FROM KS.entry WHERE slot = ? AND lane = ? AND bucket = ? \
        AND (due, sequence) > (?, ?) AND (due, sequence) < (?, ?)";
    scan: Read = "SELECT due, sequence, topic, part, kind, message_key, state FROM KS.entry \
        WHERE slot = ? AND lane = ? AND bucket = ? \
        AND (due, sequence) > (?, ?) AND (due, sequence) < (?, ?)";
    finished: Read = "SELECT due, sequence, topic, part, state, ended_at, name, first_due, \
        first_sequence, content FROM KS.entry WHERE slot = ? AND lane = ? AND bucket = ? \
        AND (due, sequence) > (?, ?)";
    bucket_put: Write = "INSERT INTO KS.bucket (slot, lane, bucket) VALUES (?, ?, ?) \
        USING TIMESTAMP ?";
    bucket_next: Read = "SELECT bucket FROM KS.bucket WHERE slot = ? AND lane = ? \
        AND bucket >= ? AND bucket <= ? LIMIT ?";
    bucket_drop: Write = "DELETE FROM KS.bucket USING TIMESTAMP ? \
        WHERE slot = ? AND lane = ? AND bucket = ?";
    topic_put: Write = "INSERT INTO KS.topic_span (topic, lane, span, slot) \
        VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    topic_next: Read = "SELECT span, slot FROM KS.topic_span WHERE topic = ? AND lane = ? \
        AND span >= ? AND span <= ?";
    topic_drop: Write = "DELETE FROM KS.topic_span USING TIMESTAMP ? \
        WHERE topic = ? AND lane = ? AND span = ? AND slot = ?";
    span_put: Write = "INSERT INTO KS.span_topic (slot, lane, span, topic) \
        VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    span_topics: Read = "SELECT topic FROM KS.span_topic WHERE slot = ? AND lane = ? AND span = ?";
    span_drop: Write = "DELETE FROM KS.span_topic USING TIMESTAMP ? \
        WHERE slot = ? AND lane = ? AND span = ?";
    moved_put: Write = "INSERT INTO KS.moved (slot, lane, bucket, first_due, first_sequence, due, \
        sequence) VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    moved: Read = "SELECT due, sequence FROM KS.moved WHERE slot = ? AND lane = ? AND bucket = ? \
        AND first_due = ? AND first_sequence = ?";
    moved_drop: Write = "DELETE FROM KS.moved USING TIMESTAMP ? WHERE slot = ? AND lane = ? \
        AND bucket = ? AND first_due = ? AND first_sequence = ?";
    name: Read = "SELECT due, sequence, part, print FROM KS.name WHERE topic = ? AND name = ?";
    name_latest: Latest = "SELECT due, sequence, part, print FROM KS.name \
        WHERE topic = ? AND name = ?";
    name_new: Decide = "INSERT INTO KS.name (topic, name, due, sequence, part, print) \
        VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    name_from: Decide = "UPDATE KS.name SET due = ?, sequence = ?, part = ?, print = ? \
        WHERE topic = ? AND name = ? IF due = ? AND sequence = ?";
    name_drop: Decide = "DELETE FROM KS.name WHERE topic = ? AND name = ? \
        IF due = ? AND sequence = ?";
    count: Add = "UPDATE KS.counted SET n = n + ? \
        WHERE topic = ? AND shard = ? AND lane = ? AND kind = ? AND hour = ?";
    counted: Read = "SELECT lane, kind, hour, n FROM KS.counted WHERE topic = ? AND shard = ?";
    sum: Add = "UPDATE KS.total SET n = n + ? WHERE lane = ? AND shard = ? AND topic = ?";
    total: Read = "SELECT topic, n FROM KS.total WHERE lane = ? AND shard = ?";
    head: Latest = "SELECT DISTINCT kind, head FROM KS.document WHERE kind = ?";
    documents: Read = "SELECT head, name, revision, content FROM KS.document WHERE kind = ?";
    document: Latest = "SELECT head, revision FROM KS.document WHERE kind = ? AND name = ?";
    document_head: Decide = "UPDATE KS.document SET head = ? WHERE kind = ? IF head = ?";
    document_put: Decide = "UPDATE KS.document SET revision = ?, content = ? \
        WHERE kind = ? AND name = ? IF revision = ?";
    archive: Write = "INSERT INTO KS.archive (topic, day, due, sequence, part, first_due, \
        first_sequence, state, ended_at, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
        USING TIMESTAMP ?";
    figures_put: Write = "INSERT INTO KS.figures (kind, node, content) VALUES (?, ?, ?)";
    figures: Read = "SELECT node, content FROM KS.figures WHERE kind = ?";
    trend_put: Write = "INSERT INTO KS.trend (day, starts_at, node, content) VALUES (?, ?, ?, ?)";
    trend: Read = "SELECT starts_at, node, content FROM KS.trend WHERE day = ? \
        AND starts_at >= ? AND starts_at < ?";
    trend_drop: Write = "DELETE FROM KS.trend WHERE day = ?";
}

async fn prepare(
    session: &Session,
    keyspace: &str,
    consistency: Consistency,
    nature: Nature,
    text: &str,
) -> Result<PreparedStatement, OpenError> {
    let statement = Statement::new(text.replace("KS.", &format!("{keyspace}.")));
    let mut prepared = session.prepare(statement).await.map_err(OpenError::unavailable)?;
    let local = consistency == Consistency::LocalQuorum;
    let serial = if local { SerialConsistency::LocalSerial } else { SerialConsistency::Serial };
    prepared.set_consistency(match (nature, local) {
        (Nature::Latest, false) => Level::Serial,
        (Nature::Latest, true) => Level::LocalSerial,
        _ => consistency.level(),
    });
    prepared.set_serial_consistency(Some(serial));
    prepared.set_is_idempotent(matches!(nature, Nature::Read | Nature::Latest | Nature::Write));
    prepared.set_page_size(PAGE_ROWS);
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns that make up the partition of each table.
    const PARTITIONS: &[(&str, &[&str])] = &[
        ("KS.slot", &["slot"]),
        ("KS.entry", &["slot", "lane", "bucket"]),
        ("KS.bucket", &["slot", "lane"]),
        ("KS.topic_span", &["topic", "lane"]),
        ("KS.span_topic", &["slot", "lane"]),
        ("KS.moved", &["slot", "lane", "bucket"]),
        ("KS.name", &["topic", "name"]),
        ("KS.counted", &["topic", "shard"]),
        ("KS.total", &["lane", "shard"]),
        ("KS.document", &["kind"]),
        ("KS.archive", &["topic", "day"]),
        ("KS.figures", &["kind"]),
        ("KS.trend", &["day"]),
    ];

    #[test]
    fn every_statement_is_about_one_partition_and_lets_nothing_be_filtered() {
        for text in TEXTS {
            assert!(!text.contains("FILTERING"), "{text}");
            let table = text.split([' ', '(']).find(|word| word.starts_with("KS.")).unwrap();
            let (_, partition) = PARTITIONS.iter().find(|(name, _)| *name == table).unwrap();
            if text.starts_with("INSERT") {
                continue;
            }
            let (_, condition) = text.split_once(" WHERE ").unwrap();
            for column in *partition {
                let named = format!("{column} = ?");
                assert!(condition.contains(&named), "{text} does not say {named}");
            }
        }
    }
}
