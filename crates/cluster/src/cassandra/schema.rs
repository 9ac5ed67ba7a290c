//! The tables, made when a node starts, and the refusal of settings that could lose messages.
//!
//! ```text
//! slot          ((slot), part)                    term, marks and stamps of a slot; the change under way
//! entry         ((slot, lane, bucket), due, sequence)   what is pending, and what has ended a while ago
//! bucket        ((slot, lane), bucket)            which partitions of `entry` there are
//! topic_span    ((topic, lane), span, slot)       in which hours a topic has something, and in which slots
//! span_topic    ((slot, lane), span, topic)       the same by slot, for whoever removes it
//! moved         ((slot, lane, bucket), first_due, first_sequence)   where a message stands that was moved
//! name          ((topic, name))                   whose name an own id is
//! counted, total                                  counters for forecasts
//! document      ((kind), name)                    what all nodes share
//! figures       ((kind), node)                    what each node has counted
//! trend         ((day), starts_at, node)          what ten minutes brought on each node
//! archive       ((topic, day), due, sequence)     what has ended, where it is kept for good
//! ```
//!
//! `slot`, `name` and `document` are written by lightweight transactions alone, the others never by
//! one: the two kinds of writes have clocks of their own and must not meet in a row. Several nodes
//! may start at once: all send their statements to the same Cassandra node, one after another.

use std::collections::HashMap;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::unprepared::Statement;

use super::{CassandraOptions, Consistency, OpenError, REPLICATION, Replication};

/// The version of the tables below. A store that a later version made is left alone.
const VERSION: i32 = 1;

/// Copies below which one lost machine may be one too many.
const REPLICAS_MIN: u32 = 3;

/// How long a change of tables may take.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS KS.schema_version (id int PRIMARY KEY, version int)",
    "CREATE TABLE IF NOT EXISTS KS.slot (slot int, part tinyint, term bigint STATIC, \
     claimed_until bigint STATIC, ended_message bigint STATIC, ended_retry bigint STATIC, \
     counters_until bigint STATIC, stamps_until bigint STATIC, content blob, \
     PRIMARY KEY (slot, part))",
    // What is dropped as a whole partition lies in a later window than what it covers: compaction
    // has to look there, or nothing would ever be freed.
    "CREATE TABLE IF NOT EXISTS KS.entry (slot int, lane tinyint, bucket bigint, due bigint, \
     sequence bigint, topic int, part smallint, kind tinyint, message_key blob, content blob, \
     name text, first_due bigint, first_sequence bigint, state tinyint, ended_at bigint, \
     PRIMARY KEY ((slot, lane, bucket), due, sequence)) WITH compaction = \
     {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', \
     'compaction_window_size': '1', 'unchecked_tombstone_compaction': 'true', \
     'provide_overlapping_tombstones': 'row'}",
    "CREATE TABLE IF NOT EXISTS KS.bucket (slot int, lane tinyint, bucket bigint, \
     PRIMARY KEY ((slot, lane), bucket))",
    "CREATE TABLE IF NOT EXISTS KS.topic_span (topic int, lane tinyint, span bigint, slot int, \
     PRIMARY KEY ((topic, lane), span, slot))",
    "CREATE TABLE IF NOT EXISTS KS.span_topic (slot int, lane tinyint, span bigint, topic int, \
     PRIMARY KEY ((slot, lane), span, topic))",
    "CREATE TABLE IF NOT EXISTS KS.moved (slot int, lane tinyint, bucket bigint, first_due bigint, \
     first_sequence bigint, due bigint, sequence bigint, \
     PRIMARY KEY ((slot, lane, bucket), first_due, first_sequence))",
    "CREATE TABLE IF NOT EXISTS KS.name (topic int, name text, due bigint, sequence bigint, \
     part smallint, print bigint, PRIMARY KEY ((topic, name)))",
    "CREATE TABLE IF NOT EXISTS KS.counted (topic int, shard tinyint, lane tinyint, kind tinyint, \
     hour bigint, n counter, PRIMARY KEY ((topic, shard), lane, kind, hour))",
    "CREATE TABLE IF NOT EXISTS KS.total (lane tinyint, shard tinyint, topic int, n counter, \
     PRIMARY KEY ((lane, shard), topic))",
    "CREATE TABLE IF NOT EXISTS KS.document (kind text, name text, head bigint STATIC, \
     revision bigint, content blob, PRIMARY KEY (kind, name))",
    "CREATE TABLE IF NOT EXISTS KS.archive (topic int, day bigint, due bigint, sequence bigint, \
     part smallint, first_due bigint, first_sequence bigint, state tinyint, ended_at bigint, \
     content blob, PRIMARY KEY ((topic, day), due, sequence)) WITH compaction = \
     {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', \
     'compaction_window_size': '1'}",
    "CREATE TABLE IF NOT EXISTS KS.figures (kind text, node text, content blob, \
     PRIMARY KEY (kind, node))",
    // Twice as long as points are kept: what nobody was there to remove goes by itself.
    "CREATE TABLE IF NOT EXISTS KS.trend (day bigint, starts_at bigint, node text, content blob, \
     PRIMARY KEY (day, starts_at, node)) WITH default_time_to_live = 1209600 AND compaction = \
     {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', \
     'compaction_window_size': '1'}",
];

/// Makes what is missing and checks what is there.
pub(super) async fn make(session: &Session, options: &CassandraOptions) -> Result<(), OpenError> {
    let keyspace = &options.keyspace;
    if replicas(session, options).await?.is_none() {
        check_replicas(options, options.replication.smallest(options.consistency))?;
        let replication = options.replication.to_string();
        change(
            session,
            format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"),
        )
        .await?;
    }
    // Somebody else may have made it, with another number.
    let found = replicas(session, options).await?.unwrap_or_default();
    check_replicas(options, found)?;
    for table in TABLES {
        change(session, table.replace("KS.", &format!("{keyspace}."))).await?;
    }
    check_version(session, keyspace).await?;
    look_at_commit_log(session).await;
    Ok(())
}

/// Says it where acknowledged writes wait for a while to be flushed: one copy that dies is made good
/// by the others, a power cut that takes most of them is not.
async fn look_at_commit_log(session: &Session) {
    let text = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
    // Not every user may read it.
    let Ok(answer) = session.query_unpaged(text, ()).await else { return };
    let Ok(rows) = answer.into_rows_result() else { return };
    if let Ok(Some((value,))) = rows.maybe_first_row::<(String,)>()
        && value == "periodic"
    {
        tracing::warn!(
            "Cassandra flushes its commit log periodically: a power cut of most copies at once \
             loses acknowledged messages; commitlog_sync: group does not"
        );
    }
}

fn check_replicas(options: &CassandraOptions, found: u32) -> Result<(), OpenError> {
    if found >= REPLICAS_MIN || options.allows(REPLICATION) {
        Ok(())
    } else {
        Err(OpenError::Unsafe {
            setting: REPLICATION,
            value: found.to_string(),
            advice: "keep three copies or more",
        })
    }
}

/// How many copies there are of what is in the keyspace; `None` when there is no keyspace.
async fn replicas(session: &Session, options: &CassandraOptions) -> Result<Option<u32>, OpenError> {
    let text = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let answer = session.query_unpaged(text, (&options.keyspace,)).await;
    let rows = answer.map_err(OpenError::unavailable)?.into_rows_result();
    let rows = rows.map_err(OpenError::unavailable)?;
    let row = rows.maybe_first_row::<(HashMap<String, String>,)>();
    let Some((replication,)) = row.map_err(OpenError::unavailable)? else { return Ok(None) };
    Ok(Some(copies(&replication, options.consistency)))
}

/// Copies by the words of a keyspace: of the datacenter with the fewest, or in all where a quorum is
/// over all of them.
fn copies(replication: &HashMap<String, String>, consistency: Consistency) -> u32 {
    let numbers = replication.iter().filter(|(name, _)| *name != "class").map(|(_, value)| {
        // With transient copies it is written as 3/1.
        let (full, transient) = value.split_once('/').unwrap_or((value.as_str(), "0"));
        let full: u32 = full.parse().unwrap_or(0);
        full.saturating_sub(transient.parse().unwrap_or(0))
    });
    Replication::count(numbers, consistency)
}

async fn check_version(session: &Session, keyspace: &str) -> Result<(), OpenError> {
    let text = format!("SELECT version FROM {keyspace}.schema_version WHERE id = 0");
    let make = format!("INSERT INTO {keyspace}.schema_version (id, version) VALUES (0, {VERSION})");
    for _ in 0..2 {
        let answer = session.query_unpaged(text.as_str(), ()).await;
        let rows = answer.map_err(OpenError::unavailable)?.into_rows_result();
        let rows = rows.map_err(OpenError::unavailable)?;
        match rows.maybe_first_row::<(i32,)>().map_err(OpenError::unavailable)? {
            Some((found,)) if found > VERSION => return Err(OpenError::Newer { found }),
            Some(_) => return Ok(()),
            None => {
                let answer = session.query_unpaged(make.as_str(), ()).await;
                answer.map_err(OpenError::unavailable)?;
            }
        }
    }
    Ok(())
}

/// One change of tables. The driver awaits that all nodes agree on it.
async fn change(session: &Session, text: String) -> Result<(), OpenError> {
    let mut statement = Statement::new(text);
    statement.set_is_idempotent(true);
    statement.set_request_timeout(Some(PATIENCE));
    // Two nodes that make one table at the same time would each give it an identity of its own.
    let state = session.get_cluster_state();
    let first = state.get_nodes_info().iter().filter(|node| node.is_connected());
    if let Some(node) = first.min_by_key(|node| node.host_id) {
        let target = NodeIdentifier::HostId(node.host_id);
        statement
            .set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(target, None)));
    }
    session.query_unpaged(statement, ()).await.map(drop).map_err(OpenError::unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn copies_are_read_from_the_words_of_a_keyspace() {
        let simple = words(&[("class", "SimpleStrategy"), ("replication_factor", "3")]);
        assert_eq!(copies(&simple, Consistency::Quorum), 3);
        let two = words(&[("class", "NetworkTopologyStrategy"), ("east", "3"), ("west", "2")]);
        assert_eq!(copies(&two, Consistency::Quorum), 5);
        assert_eq!(copies(&two, Consistency::LocalQuorum), 2);
        assert_eq!(
            copies(&words(&[("class", "x"), ("replication_factor", "3/1")]), Consistency::Quorum),
            2
        );
        assert_eq!(copies(&words(&[("class", "x"), ("dc", "many")]), Consistency::Quorum), 0);
        assert_eq!(copies(&words(&[]), Consistency::LocalQuorum), 0);
    }
}
