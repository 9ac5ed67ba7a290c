//! What a database takes of slots, beside what it does with plain inserts of the same bytes.
//!
//! The store is asked in process, with much pending; for each size of batch both take turns and the median of
//! the rounds is told, so that both see the same machine. The plain table has the same clustered key and no
//! other index. Other programs take their share of the machine, so the server's CPU time for each row is told
//! beside the rates.

mod cassandra;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use punctual_cluster::mysql::{MysqlOptions, MysqlStore};
use punctual_cluster::store::{Change, Group, Outcome, Slot, SlotStore as _, Tenure};
use punctual_model::ports::PendingQuery;
use punctual_model::stored::record;
use punctual_model::{
    Basis, Clock as _, Entry, Key, Lane, Message, MessageId, Partition, State, SystemClock,
    Timestamp, TopicId,
};
use serde_json::json;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};

use crate::args::{Common, StoreOptions};
use crate::kafka::median;
use crate::measure::cpu_of;
use crate::report::{Report, Table, say, short};

const BATCHES: [u64; 2] = [100, 1000];
const ROUNDS: usize = 6;
/// Messages of a page that is listed.
const PAGE: usize = 100;
/// Calls whose median is told.
const CALLS: usize = 9;
const TOPICS: u32 = 100;
const DAYS_MS: u64 = 3 * 86_400_000;
const START_MS: u64 = 1_800_000_000_000;
const DATABASE: &str = "punctual_bench_store";
/// Counters of one part stay clear of those of the others.
const PART: u64 = 100_000_000;

pub(crate) fn run(common: &Common, options: &StoreOptions) -> Result<()> {
    let settings = json!({
        "pending": options.pending, "seconds": options.secs, "writers": options.writers,
        "body": options.body,
    });
    let name = if options.cassandra.is_some() { "store-cassandra" } else { "store" };
    let name = format!("{name}-{}", short(options.pending));
    let mut report = Report::new(name, common, settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match (options.cassandra, options.database) {
        (Some(address), _) => {
            runtime.block_on(cassandra::measure(address, options, &mut report))?;
        }
        (None, Some(address)) => runtime.block_on(measure(address, options, &mut report))?,
        (None, None) => bail!("which database?"),
    }
    report.finish(common)
}

async fn measure(address: SocketAddr, options: &StoreOptions, report: &mut Report) -> Result<()> {
    let bench = Bench::open(address, options).await?;
    let fill = bench.each(Part::Fill, options.pending / u64::from(options.writers), 0).await?;
    report.figure("rows per second, filling", fill.rows);
    let mut connection = bench.connect().await?;
    let copy = "INSERT INTO plain SELECT slot, lane, due, sequence, content FROM punctual_entries";
    connection.execute(copy).await?;
    say("filled");
    bench.list(report).await?;
    let columns = ["plain inserts", "put", "share", "end"];
    let mut rates = Table::new("rows per second", &columns);
    let mut costs = Table::new("the server's CPU for each row, µs", &columns);
    let mut first = PART;
    for batch in BATCHES {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            rounds.push(bench.round(round % 2 == 0, batch, first).await?);
            first += PART;
        }
        let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        let name = format!("batches of {batch}");
        let share = of(&|round| round.put.rows / round.plain.rows.max(1.0));
        rates.row(
            name.as_str(),
            vec![
                of(&|all| all.plain.rows),
                of(&|all| all.put.rows),
                share,
                of(&|all| all.end.rows),
            ],
        );
        report.figure(&format!("share of plain inserts, {name}"), share);
        let cpu_share = of(&|round| round.plain.cpu_us / round.put.cpu_us.max(1e-9));
        costs.row(
            name.as_str(),
            vec![
                of(&|all| all.plain.cpu_us),
                of(&|all| all.put.cpu_us),
                cpu_share,
                of(&|all| all.end.cpu_us),
            ],
        );
    }
    report.table(rates);
    if options.process.is_some() {
        report.table(costs);
    }
    bench.purge(report).await?;
    bench.store.close().await;
    connection.execute(AssertSqlSafe(format!("DROP DATABASE {DATABASE}"))).await?;
    Ok(())
}

/// Rows a second, and microseconds of the server's CPU time for each.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    rows: f64,
    cpu_us: f64,
}

/// Measures by the time, and by the CPU time of the server where its process is known.
#[derive(Clone)]
struct Meter {
    process: Option<u32>,
    clock: Arc<SystemClock>,
}

impl Meter {
    fn new(process: Option<u32>) -> Self {
        Self { process, clock: Arc::new(SystemClock::new()) }
    }

    fn now(&self) -> Duration {
        self.clock.read().monotonic
    }

    /// CPU time that the server has taken.
    fn cpu(&self) -> Result<Duration> {
        let Some(process) = self.process else { return Ok(Duration::ZERO) };
        cpu_of(process).map(|(user, system)| user + system)
    }

    /// Milliseconds since then.
    fn ms_since(&self, start: Duration) -> f64 {
        self.now().saturating_sub(start).as_secs_f64() * 1e3
    }

    /// What writers do side by side, each in a slot of its own; each answers how many rows it has written.
    async fn together<F>(&self, writers: u16, write: impl Fn(u16) -> F) -> Result<Rate>
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        let start = (self.now(), self.cpu()?);
        let mut at_work = tokio::task::JoinSet::new();
        for slot in 0..writers {
            at_work.spawn(write(slot));
        }
        let mut rows = 0;
        while let Some(done) = at_work.join_next().await {
            rows += done??;
        }
        self.rate(rows, start)
    }

    /// So many rows since the clock and the server's CPU time were so.
    fn rate(&self, rows: u64, (start, cpu): (Duration, Duration)) -> Result<Rate> {
        let took = self.now().saturating_sub(start).as_secs_f64();
        let cpu = self.cpu()?.saturating_sub(cpu).as_secs_f64();
        Ok(Rate { rows: rows as f64 / took.max(1e-9), cpu_us: cpu * 1e6 / (rows as f64).max(1.0) })
    }
}

/// What was measured one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    plain: Rate,
    put: Rate,
    end: Rate,
}

/// What writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Fill,
    Plain,
    Put,
    End,
}

#[derive(Clone)]
struct Bench {
    store: MysqlStore,
    address: SocketAddr,
    meter: Meter,
    writers: u16,
    time: Duration,
    body: Bytes,
}

impl Bench {
    async fn open(address: SocketAddr, options: &StoreOptions) -> Result<Self> {
        let mut connection = connect(address, None).await?;
        let fresh = format!("DROP DATABASE IF EXISTS {DATABASE}; CREATE DATABASE {DATABASE}");
        connection.execute(AssertSqlSafe(fresh)).await?;
        let mut database = MysqlOptions::new(format!("mysql://{address}/{DATABASE}"));
        database.user = Some("root".to_owned());
        database.deadline = Duration::from_secs(60);
        let store = MysqlStore::open(database).await?;
        let bench = Self {
            store,
            address,
            meter: Meter::new(options.process),
            writers: options.writers,
            time: Duration::from_secs(options.secs),
            body: Bytes::from(vec![0x5a; options.body]),
        };
        let plain = "CREATE TABLE plain (slot SMALLINT UNSIGNED NOT NULL, lane TINYINT UNSIGNED \
            NOT NULL, due BIGINT UNSIGNED NOT NULL, sequence BIGINT UNSIGNED NOT NULL, \
            content LONGBLOB NOT NULL, PRIMARY KEY (slot, lane, due, sequence)) ENGINE = InnoDB";
        bench.connect().await?.execute(plain).await?;
        for slot in 0..options.writers {
            bench.store.take(tenure(slot)).await?.context("nobody else takes it")?;
        }
        Ok(bench)
    }

    async fn connect(&self) -> Result<MySqlConnection> {
        connect(self.address, Some(DATABASE)).await
    }

    /// Each once. Which is first changes from round to round, since what one leaves to be flushed is
    /// flushed during the next.
    async fn round(&self, plain_first: bool, batch: u64, first: u64) -> Result<Round> {
        let mut round = Round::default();
        if plain_first {
            round.plain = self.each(Part::Plain, batch, first).await?;
            round.put = self.each(Part::Put, batch, first).await?;
        } else {
            round.put = self.each(Part::Put, batch, first).await?;
            round.plain = self.each(Part::Plain, batch, first).await?;
        }
        round.end = self.each(Part::End, batch, first).await?;
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

    /// Pages of a topic that has one message in a hundred, from the start and one after the other.
    async fn list(&self, report: &mut Report) -> Result<()> {
        let mut query = PendingQuery::all_of(
            TopicId::new(1).context("there is a first topic")?,
            Lane::Message,
            PAGE,
        );
        let (mut times, mut found) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let start = self.meter.now();
            let page = self.store.pending(query.clone()).await?;
            times.push(self.meter.ms_since(start));
            found.push(page.entries.len() as f64);
            query.after = page.next;
        }
        report.figure(&format!("ms for a page of at most {PAGE}"), median(times));
        report.figure("messages in it", median(found));
        Ok(())
    }

    /// Forgets what has ended, some of it.
    async fn purge(&self, report: &mut Report) -> Result<()> {
        let (mut times, cpu) = (Vec::new(), self.meter.cpu()?);
        let mut more = true;
        while more && times.len() < CALLS {
            let start = self.meter.now();
            more = self.store.purge(tenure(0), Timestamp::MAX).await?;
            times.push(self.meter.ms_since(start));
        }
        let rows = times.len() as f64 * 2000.0;
        let cpu = self.meter.cpu()?.saturating_sub(cpu).as_secs_f64();
        report.figure("ms to forget 2,000 rows", median(times));
        report.figure("the server's CPU for each, µs", cpu * 1e6 / rows);
        Ok(())
    }

    async fn write(&self, part: Part, slot: u16, size: u64, first: u64) -> Result<u64> {
        let mut connection = self.connect().await?;
        let batch = if part == Part::Fill { 1000 } else { size };
        let end = self.meter.now() + self.time;
        let mut done = 0;
        loop {
            let is_over = match part {
                Part::Fill => done >= size,
                Part::Plain | Part::Put | Part::End => self.meter.now() >= end,
            };
            if is_over {
                return Ok(done);
            }
            let from = first + done + 1;
            if part == Part::Plain {
                self.insert(&mut connection, slot, from..from + batch).await?;
            } else {
                let change = |number| self.change(part, slot, number);
                let changes = (from..from + batch).map(change).collect();
                let group = Group { tenure: tenure(slot), changes };
                let outcomes = self.store.apply(vec![group]).await?;
                ensure!(outcomes == [Outcome::Done], "{outcomes:?}");
            }
            done += batch;
        }
    }

    fn change(&self, part: Part, slot: u16, number: u64) -> Change {
        let (key, entry) = entry(slot, number, &self.body);
        if part != Part::End {
            return Change::Put { key, entry };
        }
        let id = MessageId { key, topic: entry.topic, partition: entry.partition };
        let at = Timestamp::from_millis_saturating(START_MS + number);
        Change::End { id, key, state: State::Delivered, at }
    }

    /// One statement of many rows, prepared once for each connection.
    async fn insert(
        &self,
        connection: &mut MySqlConnection,
        slot: u16,
        numbers: std::ops::Range<u64>,
    ) -> Result<()> {
        let rows = numbers.clone().map(|_| "(?, ?, ?, ?, ?)").collect::<Vec<_>>().join(",");
        let mut insert = sqlx::query(AssertSqlSafe(format!("INSERT INTO plain VALUES {rows}")));
        for number in numbers {
            let (key, entry) = entry(slot, number, &self.body);
            let mut content = Vec::new();
            record::encode(&mut content, &entry);
            insert = insert.bind(slot).bind(0_u8).bind(key.due.as_millis());
            insert = insert.bind(key.sequence.get()).bind(content);
        }
        insert.execute(connection).await?;
        Ok(())
    }
}

/// Due at any time in three days, in one of a hundred topics.
fn entry(slot: u16, number: u64, body: &Bytes) -> (Key, Entry) {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % DAYS_MS;
    entry_at(slot, number, Timestamp::from_millis_saturating(START_MS + spread), body)
}

fn entry_at(slot: u16, number: u64, due: Timestamp, body: &Bytes) -> (Key, Entry) {
    let topic = u32::try_from(number % u64::from(TOPICS)).unwrap_or(0) + 1;
    let entry = Entry {
        topic: TopicId::new(topic).unwrap_or(TopicId::MAX),
        partition: Partition::new(0).expect("there is a first partition"),
        due,
        basis: Basis::Delay,
        message: Message { body: body.clone(), ..Message::default() },
        extra: None,
    };
    (Key { due, sequence: Slot(slot).sequence(Lane::Message, number) }, entry)
}

fn tenure(slot: u16) -> Tenure {
    Tenure { slot: Slot(slot), term: 1 }
}

async fn connect(address: SocketAddr, database: Option<&str>) -> Result<MySqlConnection> {
    let options = MySqlConnectOptions::new().username("root").host(&address.ip().to_string());
    let options = options.port(address.port()).disable_statement_logging();
    let options = match database {
        Some(database) => options.database(database),
        None => options,
    };
    Ok(options.connect().await?)
}
