//! What Cassandra takes of slots, beside what it does with plain inserts of the same bytes.
//!
//! A plain batch is unlogged and of one partition: the best that Cassandra can do. Messages come in two
//! kinds: with one delay, so that a batch falls into one or two partitions of a slot, and with due times all
//! over three days, so that nearly every row is in a partition of its own; the same rows are also inserted
//! plainly into those same partitions, in batches of ten. All take turns, and the median of the rounds is told.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use punctual_cluster::cassandra::{CassandraOptions, CassandraStore, Replication};
use punctual_cluster::store::{Change, Group, Outcome, Slot, SlotStore as _};
use punctual_model::stored::record;
use punctual_model::{Entry, Key, Lane, MessageId, State, Timestamp};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::{BATCHES, DATABASE, DAYS_MS, Meter, PART, Rate, START_MS, entry, entry_at, tenure};
use crate::args::StoreOptions;
use crate::kafka::median;
use crate::report::{Report, Table, say};

const ROUNDS: usize = 3;
/// As the store divides time.
const BUCKET_MS: u64 = 900_000;
/// Messages with one delay are due past all others, a millisecond apart.
const IN_ORDER_MS: u64 = START_MS + 10 * DAYS_MS;
/// Requests to the plain table on their way at a time, for one writer.
const REQUESTS_AT_ONCE: usize = 128;
/// Partitions and bytes of one request beyond which Cassandra warns, as it comes.
const WARNED_PARTITIONS: usize = 10;
const WARNED_BYTES: usize = 5 << 10;
/// Rows of a page that is read.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES: usize = 64 << 20;

/// What writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Fill,
    Plain,
    Put,
    End,
    PlainSpread,
    PutSpread,
    EndSpread,
}

const PARTS: [Part; 6] =
    [Part::Plain, Part::Put, Part::PlainSpread, Part::PutSpread, Part::End, Part::EndSpread];

pub(super) async fn measure(
    address: SocketAddr,
    options: &StoreOptions,
    report: &mut Report,
) -> Result<()> {
    let bench = Box::pin(Bench::open(address, options)).await?;
    let fill = bench.each(Part::Fill, options.pending / u64::from(options.writers), 0).await?;
    report.figure("rows per second, filling", fill.rows);
    say("filled");
    let (page, cpu_us) = bench.read_on(Key { due: Timestamp::MIN, ..Key::default() }).await?;
    report.figure("rows per second, reading pages", page);
    report.figure("Cassandra's CPU for each row read, µs", cpu_us);
    let mut rates = Table::new(
        "rows per second",
        &[
            "plain",
            "put",
            "share",
            "end",
            "plain, spread",
            "put, spread",
            "share, spread",
            "end, spread",
        ],
    );
    let mut costs = Table::new(
        "Cassandra's CPU for each row, µs",
        &["plain", "put", "plain, spread", "put, spread", "end", "end, spread"],
    );
    let mut first = PART;
    for batch in BATCHES {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            rounds.push(bench.round(round % 2 == 1, batch, first).await?);
            first += PART;
        }
        let of = |figure: &dyn Fn(&[Rate; PARTS.len()]) -> f64| {
            median(rounds.iter().map(figure).collect())
        };
        let rows = |part: usize| of(&|round| round[part].rows);
        let share = |put: usize| of(&|round| round[put].rows / round[put - 1].rows.max(1.0));
        let of_plain = of(&|round| round[3].rows / round[0].rows.max(1.0));
        let name = format!("batches of {batch}");
        let row = vec![rows(0), rows(1), share(1), rows(4), rows(2), rows(3), share(3), rows(5)];
        rates.row(name.as_str(), row);
        costs.row(name.as_str(), (0..PARTS.len()).map(|at| of(&|all| all[at].cpu_us)).collect());
        report.figure(&format!("share of plain inserts, {name}"), share(1));
        report.figure(&format!("share of plain inserts, {name}, spread"), share(3));
        report.figure(&format!("spread, of plain inserts in one partition, {name}"), of_plain);
    }
    report.table(rates);
    if options.process.is_some() {
        report.table(costs);
    }
    bench.frontier(report).await?;
    bench.session.query_unpaged(format!("DROP KEYSPACE {DATABASE}"), ()).await?;
    Ok(())
}

#[derive(Clone)]
struct Bench {
    store: CassandraStore,
    session: Arc<Session>,
    insert: PreparedStatement,
    meter: Meter,
    writers: u16,
    time: Duration,
    body: Bytes,
}

impl Bench {
    async fn open(address: SocketAddr, options: &StoreOptions) -> Result<Self> {
        let session = SessionBuilder::new().known_node_addr(address).tcp_nodelay(true);
        let session = session.build().await?;
        session.query_unpaged(format!("DROP KEYSPACE IF EXISTS {DATABASE}"), ()).await?;
        let database = CassandraOptions {
            replication: Replication::Simple(1),
            deadline: Duration::from_secs(60),
            allow_unsafe: vec!["replication".to_owned()],
            ..CassandraOptions::new(vec![address.to_string()], DATABASE)
        };
        let store = CassandraStore::open(database).await?;
        let plain = format!(
            "CREATE TABLE {DATABASE}.plain (slot int, bucket bigint, due bigint, sequence bigint, \
             topic int, part smallint, content blob, PRIMARY KEY ((slot, bucket), due, sequence))"
        );
        session.query_unpaged(plain, ()).await?;
        let insert = format!(
            "INSERT INTO {DATABASE}.plain (slot, bucket, due, sequence, topic, part, content) \
             VALUES (?, ?, ?, ?, ?, ?, ?)"
        );
        let insert = session.prepare(insert).await?;
        for slot in 0..=options.writers {
            store.take(tenure(slot)).await?.context("nobody else takes it")?;
        }
        Ok(Self {
            store,
            session: Arc::new(session),
            insert,
            meter: Meter::new(options.process),
            writers: options.writers,
            time: Duration::from_secs(options.secs),
            body: Bytes::from(vec![0x5a; options.body]),
        })
    }

    /// All parts in turn; in every other round the plain ones come second. Ends are always last.
    async fn round(&self, swapped: bool, batch: u64, first: u64) -> Result<[Rate; PARTS.len()]> {
        let order = if swapped { [1, 0, 3, 2, 4, 5] } else { [0, 1, 2, 3, 4, 5] };
        let mut round = [Rate::default(); PARTS.len()];
        for at in order {
            round[at] = self.each(PARTS[at], batch, first).await?;
        }
        Ok(round)
    }

    /// What all writers do together. `size` is that of a batch, or of all there is to fill.
    async fn each(&self, part: Part, size: u64, first: u64) -> Result<Rate> {
        let write = |slot| {
            let bench = self.clone();
            async move { bench.write(part, slot, size, first).await }
        };
        self.meter.together(self.writers, write).await
    }

    async fn write(&self, part: Part, slot: u16, size: u64, first: u64) -> Result<u64> {
        let batch = if part == Part::Fill { 1000 } else { size };
        let end = self.meter.now() + self.time;
        let mut done = 0;
        loop {
            let is_over = if part == Part::Fill { done >= size } else { self.meter.now() >= end };
            if is_over {
                return Ok(done);
            }
            let from = first + done + 1;
            match part {
                Part::Plain | Part::PlainSpread => {
                    self.insert(part, slot, from..from + batch).await?;
                }
                _ => self.apply(part, slot, from..from + batch).await?,
            }
            done += batch;
        }
    }

    async fn apply(&self, part: Part, slot: u16, numbers: Range<u64>) -> Result<()> {
        let changes = numbers.map(|number| self.change(part, slot, number)).collect();
        let group = Group { tenure: tenure(slot), changes };
        let outcomes = self.store.apply(vec![group]).await?;
        ensure!(outcomes == [Outcome::Done], "{outcomes:?}");
        Ok(())
    }

    fn change(&self, part: Part, slot: u16, number: u64) -> Change {
        let (key, entry) = self.entry(part, slot, number);
        if !matches!(part, Part::End | Part::EndSpread) {
            return Change::Put { key, entry };
        }
        let id = MessageId { key, topic: entry.topic, partition: entry.partition };
        Change::End { id, key, state: State::Delivered, at: key.due }
    }

    fn entry(&self, part: Part, slot: u16, number: u64) -> (Key, Entry) {
        match part {
            Part::Plain | Part::Put | Part::End => {
                let due = Timestamp::from_millis_saturating(IN_ORDER_MS + number);
                entry_at(slot, number, due, &self.body)
            }
            _ => entry(slot, number, &self.body),
        }
    }

    /// Plain rows, all of them in one partition or each where it is due.
    async fn insert(&self, part: Part, slot: u16, numbers: Range<u64>) -> Result<()> {
        let one = numbers.start / BUCKET_MS;
        let mut partitions = std::collections::BTreeMap::<u64, Vec<_>>::new();
        for number in numbers {
            let (key, entry) = self.entry(part, slot, number);
            let due = key.due.as_millis();
            let bucket = if part == Part::PlainSpread { due / BUCKET_MS } else { one };
            let mut content = Vec::with_capacity(self.body.len() + 64);
            record::encode(&mut content, &entry);
            let topic = i32::try_from(entry.topic.get())?;
            let (bucket_column, due) = (i64::try_from(bucket)?, i64::try_from(due)?);
            let sequence = i64::try_from(key.sequence.get())?;
            let row = (i32::from(slot), bucket_column, due, sequence, topic, 0_i16, content);
            partitions.entry(bucket).or_default().push(row);
        }
        // Few rows travel with those of other partitions, as many as Cassandra takes without a warning.
        let mut requests: Vec<(usize, Vec<_>)> = Vec::new();
        let small = WARNED_BYTES / (self.body.len() + 64);
        for rows in partitions.into_values() {
            match requests.last_mut() {
                Some((count, last))
                    if *count < WARNED_PARTITIONS && last.len() + rows.len() <= small =>
                {
                    *count += 1;
                    last.extend(rows);
                }
                _ => requests.push((1, rows)),
            }
        }
        let sent = requests.into_iter().map(|(_, rows)| async move {
            if let [row] = rows.as_slice() {
                self.session.execute_unpaged(&self.insert, row).await?;
                return anyhow::Ok(());
            }
            let statements = vec![self.insert.clone().into(); rows.len()];
            let batch = Batch::new_with_statements(BatchType::Unlogged, statements);
            self.session.batch(&batch, rows).await?;
            Ok(())
        });
        stream::iter(sent).buffer_unordered(REQUESTS_AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Rows a second, and CPU for each, of a reader that goes through the first slot for a while.
    async fn read_on(&self, mut after: Key) -> Result<(f64, f64)> {
        let (start, end) = ((self.meter.now(), self.meter.cpu()?), self.meter.now() + self.time);
        let mut rows = 0;
        while self.meter.now() < end {
            let page = self.page(0, after).await?;
            let Some(last) = page.last() else { break };
            after = *last;
            rows += page.len() as u64;
        }
        let Rate { rows, cpu_us } = self.meter.rate(rows, start)?;
        Ok((rows, cpu_us))
    }

    async fn page(&self, slot: u16, after: Key) -> Result<Vec<Key>> {
        let (limit, lane) = ((PAGE_ROWS, PAGE_BYTES), Lane::Message);
        let page = self.store.page(Slot(slot), lane, after, Timestamp::MAX, limit).await?;
        Ok(page.into_iter().map(|stored| stored.key).collect())
    }

    /// What the next page costs while nothing of a partition was delivered, and when most of it was: for
    /// the owner, who reads on from where it is, and for one that begins at the start.
    async fn frontier(&self, report: &mut Report) -> Result<()> {
        const ROWS: u64 = 50_000;
        let slot = self.writers;
        for from in (0..ROWS).step_by(1000) {
            self.apply(Part::Put, slot, from..from + 1000).await?;
        }
        let start = Key { due: Timestamp::MIN, ..Key::default() };
        let (last, _) = self.entry(Part::Put, slot, ROWS - 2001);
        report.figure("ms for the first page", self.page_ms(slot, start).await?);
        report.figure("ms for a late page", self.page_ms(slot, last).await?);
        for from in (0..ROWS - 2000).step_by(1000) {
            self.apply(Part::End, slot, from..from + 1000).await?;
        }
        let after = self.page_ms(slot, last).await?;
        report.figure("ms for it after 48k before it were delivered", after);
        let walk = self.page_ms(slot, start).await?;
        report.figure("ms for it from the start of the partition", walk);
        Ok(())
    }

    /// The median of some times.
    async fn page_ms(&self, slot: u16, after: Key) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..9 {
            let start = self.meter.now();
            let page = self.page(slot, after).await?;
            ensure!(page.len() == PAGE_ROWS, "{} rows in a page", page.len());
            times.push(self.meter.ms_since(start));
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}
