//! Rows on their way to Cassandra: few requests for many rows.
//!
//! Rows of one partition go together, as one change of it. Messages whose due times are all over are in
//! partitions of their own, and a request for each would cost more than what it asks for. So small
//! ones travel together too, if the same machine keeps them: it carries them out itself, one by one. How many
//! and how large is what Cassandra takes without a warning, as it comes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::cluster::ClusterState;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::Inner;
use super::calls::{Trouble, side_by_side};

/// Rows of one partition that go together.
const ROWS_MAX: usize = 1000;

/// Bytes of one partition that go together.
const BYTES_MAX: usize = 512 << 10;

/// Partitions that go together: `unlogged_batch_across_partitions_warn_threshold`.
const PARTITIONS_MAX: usize = 10;

/// Bytes of several partitions that go together: below `batch_size_warn_threshold`.
const SHARED_BYTES_MAX: usize = 4 << 10;

/// Requests on their way at a time, for one slot.
const REQUESTS_AT_ONCE: usize = 128;

/// One row's change.
pub(super) struct Write<'a> {
    pub(super) statement: &'a PreparedStatement,
    pub(super) values: Box<dyn SerializeRow + Send + Sync>,
    pub(super) bytes: usize,
}

/// What goes as one request.
struct Request<R> {
    rows: Vec<R>,
    partitions: usize,
    bytes: usize,
}

impl<R> Request<R> {
    fn takes(&self, other: &Self) -> bool {
        self.partitions + other.partitions <= PARTITIONS_MAX
            && self.bytes + other.bytes <= SHARED_BYTES_MAX
    }

    fn add(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.partitions += other.partitions;
        self.bytes += other.bytes;
    }
}

/// Writes partitions side by side. It was refused only if every one of them was.
pub(super) async fn write_all<'a>(
    inner: &Inner,
    partitions: impl Iterator<Item = Vec<Write<'a>>> + Send,
) -> Result<(), Trouble> {
    let machines = Machines::new(&inner.calls.session);
    let pieces = partitions.flat_map(|rows| cut(rows, |row| row.bytes));
    let requests = shared(pieces, |row| machines.of(row));
    let done = requests.into_iter().map(|request| write(inner, request));
    let done = side_by_side(REQUESTS_AT_ONCE, done).await;
    let some = done.iter().any(|request| !matches!(request, Err(Trouble::Refused(_))));
    for request in done {
        match request {
            Err(Trouble::Refused(text)) if some => return Err(Trouble::Unsure(text)),
            Err(trouble) => return Err(trouble),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Pieces of a partition's rows that are small enough.
fn cut<R>(rows: Vec<R>, weigh: impl Fn(&R) -> usize) -> Vec<Request<R>> {
    let mut pieces: Vec<Request<R>> = Vec::new();
    for row in rows {
        let bytes = weigh(&row);
        match pieces.last_mut() {
            Some(piece) if piece.rows.len() < ROWS_MAX && piece.bytes + bytes <= BYTES_MAX => {
                piece.rows.push(row);
                piece.bytes += bytes;
            }
            _ => pieces.push(Request { rows: vec![row], partitions: 1, bytes }),
        }
    }
    pieces
}

/// Small pieces that one machine keeps as one request.
fn shared<R>(
    pieces: impl Iterator<Item = Request<R>>,
    machine: impl Fn(&R) -> Option<u128>,
) -> Vec<Request<R>> {
    let mut whole = Vec::new();
    let mut open = HashMap::new();
    for piece in pieces {
        let Some(row) = piece.rows.first().filter(|_| piece.bytes < SHARED_BYTES_MAX) else {
            whole.push(piece);
            continue;
        };
        match open.entry(machine(row)) {
            Entry::Vacant(place) => _ = place.insert(piece),
            Entry::Occupied(mut place) if place.get().takes(&piece) => place.get_mut().add(piece),
            Entry::Occupied(mut place) => whole.push(place.insert(piece)),
        }
    }
    whole.extend(open.into_values());
    whole
}

/// Who keeps what.
struct Machines {
    state: Option<Arc<ClusterState>>,
}

impl Machines {
    fn new(session: &Session) -> Self {
        let state = session.get_cluster_state();
        // One alone keeps everything.
        Self { state: Some(state).filter(|state| state.get_nodes_info().len() > 1) }
    }

    /// The machine that keeps the first copy of a row.
    fn of(&self, row: &Write<'_>) -> Option<u128> {
        let state = self.state.as_ref()?;
        let token = row.statement.calculate_token(&row.values).ok()??;
        let table = row.statement.get_table_spec()?;
        let keepers = state.get_token_endpoints(table.ks_name(), table.table_name(), token);
        keepers.first().map(|(node, _)| node.host_id.as_u128())
    }
}

async fn write(inner: &Inner, request: Request<Write<'_>>) -> Result<(), Trouble> {
    let Request { mut rows, partitions, .. } = request;
    if rows.len() == 1
        && let Some(row) = rows.pop()
    {
        return inner.calls.write(row.statement, row.values).await;
    }
    let mut batch = Batch::new(BatchType::Unlogged);
    batch.set_consistency(inner.level());
    batch.set_is_idempotent(true);
    let mut values = Vec::with_capacity(rows.len());
    for row in rows {
        batch.append_statement(row.statement.clone());
        values.push(row.values);
    }
    if partitions == 1 {
        inner.calls.batch(&batch, values).await
    } else {
        inner.calls.batch_of_several(&batch, values).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A partition, the machine that keeps it, and its bytes.
    #[derive(Clone, Copy, Debug)]
    struct Row {
        partition: usize,
        machine: u128,
        bytes: usize,
    }

    fn requests(partitions: &[(u128, Vec<usize>)]) -> Vec<Request<Row>> {
        let pieces = partitions.iter().enumerate().flat_map(|(partition, (machine, rows))| {
            let rows = rows.iter().map(|&bytes| Row { partition, machine: *machine, bytes });
            cut(rows.collect(), |row| row.bytes)
        });
        shared(pieces, |row| Some(row.machine))
    }

    #[test]
    fn single_rows_travel_by_ten() {
        let partitions = vec![(1, vec![200]); 95];
        let sizes: Vec<usize> = requests(&partitions).iter().map(|one| one.rows.len()).collect();
        assert_eq!(sizes, [10, 10, 10, 10, 10, 10, 10, 10, 10, 5]);
    }

    proptest! {
        #[test]
        fn every_row_goes_once_and_no_request_is_too_large(
            partitions in prop::collection::vec((0..3_u128, prop::collection::vec(1..3000_usize, 1..40)), 1..60)
        ) {
            let mut left: Vec<Vec<usize>> = partitions.iter().map(|(_, rows)| rows.clone()).collect();
            for request in requests(&partitions) {
                let is_shared = request.partitions > 1;
                prop_assert!(request.rows.len() <= ROWS_MAX && request.bytes <= BYTES_MAX);
                prop_assert!(!is_shared || request.bytes <= SHARED_BYTES_MAX);
                prop_assert!(request.partitions <= PARTITIONS_MAX);
                for row in &request.rows {
                    prop_assert_eq!(row.machine, request.rows[0].machine);
                    prop_assert_eq!(left[row.partition].remove(0), row.bytes, "in their order");
                }
            }
            prop_assert!(left.iter().all(Vec::is_empty));
        }
    }
}
