//! Does every decision about a transaction hold when answers get lost and the process is killed?
//!
//! Clients prepare, commit and roll back; some close their connection right after they have sent a
//! decision, and repeat it or send the opposite. Others are asked by checks. The real program is
//! killed at random moments and started again on the same directory. At the end everything that was
//! committed is in the logs, once, and nothing else is. `PUNCTUAL_KILL_TRANSACTIONS_CYCLES` makes
//! the run long; `PUNCTUAL_KILL_SEED` repeats the decisions of a run, though not its timing.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod process_support;
mod transaction_support;

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use process_support::dice::Dice;
use process_support::http::Client;
use process_support::logs::{self, Delivered};
use process_support::process::{Launch, Process};
use process_support::{number_from_environment, wait_for, wall_ms};
use serde_json::{Value, json};
use transaction_support::{Book, CHECKS, Decision, PRODUCERS, Prepare, TOPICS, read_body};

const WORKERS: u64 = 3;
/// Cycles of the run that everybody makes.
const CYCLES: u64 = 20;
/// From this many cycles on the process may live longer between two kills.
const CYCLES_LONG: u64 = 100;
/// The newest transactions, among which those to be decided are chosen.
const RECENT: usize = 100;
/// Transactions that are only checked, in the test without kills.
const SILENT: u64 = 30;

/// What all clients share.
#[derive(Default)]
struct Load {
    next_serial: AtomicU64,
    killed: AtomicBool,
    book: Mutex<Book>,
    recent: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
}

/// What happened, summed up.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    prepared: u64,
    prepared_again: u64,
    decided: u64,
    refused: u64,
    lost_answers: u64,
    checks: u64,
}

/// The connection ended with the process.
struct Gone;

/// One client of one life.
struct Worker<'a> {
    load: &'a Load,
    life: u64,
    dice: Dice,
    client: Client,
    address: SocketAddr,
}

impl Worker<'_> {
    fn run(mut self) {
        loop {
            let outcome = match self.dice.next() % 100 {
                0..35 => self.prepare(),
                35..40 => self.prepare_again(),
                40..70 => self.decide_one(),
                70..85 => self.lose_answer(),
                _ => self.contradict(),
            };
            if outcome.is_err() {
                assert!(self.load.killed.load(Ordering::SeqCst), "an answer failed without a kill");
                return;
            }
        }
    }

    fn prepare(&mut self) -> Result<(), Gone> {
        let dice = &mut self.dice;
        let count = dice.within(1, 4);
        let first = self.load.next_serial.fetch_add(count, Ordering::SeqCst);
        let prepare = Prepare {
            serials: (first..first + count).collect(),
            has_own_ids: dice.chance(60),
            delay: if dice.chance(50) { dice.within(0, 500) } else { 0 },
            from_commit: dice.chance(70),
            sent_ms: wall_ms(),
            life: self.life,
        };
        // A check of it may come before the answer.
        self.load.book.lock().unwrap().open.push(prepare.clone());
        self.send(prepare).map(|()| self.load.tally.lock().unwrap().prepared += 1)
    }

    /// Sends one again that got no answer.
    fn prepare_again(&mut self) -> Result<(), Gone> {
        let life = self.life;
        let find = |book: &Book| {
            let mut open = book.open.iter();
            open.find(|open| open.has_own_ids && open.life < life).cloned()
        };
        let Some(prepare) = find(&self.load.book.lock().unwrap()) else { return Ok(()) };
        self.send(prepare).map(|()| self.load.tally.lock().unwrap().prepared_again += 1)
    }

    fn send(&mut self, prepare: Prepare) -> Result<(), Gone> {
        let answer = self.client.post("/v1/transactions", &prepare.request());
        let answer = answer.map_err(|_no_answer| Gone)?;
        self.load.book.lock().unwrap().prepared(prepare, &answer);
        let id = answer.json["id"].as_str().unwrap().to_owned();
        // Some are left to the checks.
        if self.dice.chance(80) {
            let mut recent = self.load.recent.lock().unwrap();
            recent.push(id);
            let excess = recent.len().saturating_sub(RECENT);
            recent.drain(..excess);
        }
        Ok(())
    }

    fn pick(&mut self) -> Option<String> {
        let recent = self.load.recent.lock().unwrap();
        (!recent.is_empty()).then(|| self.dice.pick(&recent).clone())
    }

    fn decision(&mut self) -> Decision {
        if self.dice.chance(60) { Decision::Commit } else { Decision::Rollback }
    }

    fn decide_one(&mut self) -> Result<(), Gone> {
        let decision = self.decision();
        let Some(id) = self.pick() else { return Ok(()) };
        decide(self.load, &mut self.client, &id, decision)
    }

    /// Sends a decision and leaves; then says the same, or the opposite.
    fn lose_answer(&mut self) -> Result<(), Gone> {
        let decision = self.decision();
        let Some(id) = self.pick() else { return Ok(()) };
        self.load.book.lock().unwrap().transactions.get_mut(&id).unwrap().sending(decision);
        let request = format!(
            "POST /v1/transactions/{id}/{} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
            decision.word()
        );
        let sent = TcpStream::connect(self.address)
            .and_then(|mut stream| stream.write_all(request.as_bytes()));
        sent.map_err(|_no_server| Gone)?;
        self.load.tally.lock().unwrap().lost_answers += 1;
        let next = if self.dice.chance(50) { decision } else { decision.opposite() };
        decide(self.load, &mut self.client, &id, next)
    }

    /// Says the opposite of what was decided, and then the same again.
    fn contradict(&mut self) -> Result<(), Gone> {
        let Some(id) = self.pick() else { return Ok(()) };
        let decided = self.load.book.lock().unwrap().transactions[&id].decided;
        let Some(decided) = decided else { return Ok(()) };
        decide(self.load, &mut self.client, &id, decided.opposite())?;
        decide(self.load, &mut self.client, &id, decided)
    }
}

fn decide(load: &Load, client: &mut Client, id: &str, decision: Decision) -> Result<(), Gone> {
    load.book.lock().unwrap().transactions.get_mut(id).unwrap().sending(decision);
    let path = format!("/v1/transactions/{id}/{}", decision.word());
    let answer = client.post(&path, &json!({})).map_err(|_no_answer| Gone)?;
    let mut book = load.book.lock().unwrap();
    book.transactions.get_mut(id).unwrap().answered(decision, &answer);
    let mut tally = load.tally.lock().unwrap();
    *(if answer.status == 200 { &mut tally.decided } else { &mut tally.refused }) += 1;
    Ok(())
}

fn checks_path() -> String {
    format!("/v1/producer-groups/{PRODUCERS}/checks")
}

/// Is asked about transactions, and sometimes knows the answer.
fn answer_checks(load: &Load, mut client: Client, life: u64, mut dice: Dice) {
    loop {
        let request = json!({ "wait": "200ms", "max": 20 });
        let Ok(answer) = client.post(&checks_path(), &request) else { break };
        for check in answer.expect(200)["checks"].as_array().unwrap() {
            let id = load.book.lock().unwrap().checked(check, life);
            load.tally.lock().unwrap().checks += 1;
            let decision = if dice.chance(50) { Decision::Commit } else { Decision::Rollback };
            if dice.chance(30) && decide(load, &mut client, &id, decision).is_err() {
                break;
            }
        }
    }
    assert!(load.killed.load(Ordering::SeqCst), "an answer failed without a kill");
}

/// What happened to the process.
#[derive(Debug, Default)]
struct Kills {
    under_load: u64,
    while_starting: u64,
    ready_max: Duration,
}

/// Starts the process, most often straight, sometimes killing it on the way.
fn start(launch: &Launch, dice: &mut Dice, kills: &mut Kills) -> Process {
    while dice.chance(20) {
        let mut process = launch.spawn();
        let usual = u64::try_from(kills.ready_max.as_millis()).unwrap().max(10);
        std::thread::sleep(Duration::from_millis(dice.within(0, usual * 5 / 4)));
        process.kill();
        process.check_log();
        kills.while_starting += 1;
    }
    let mut process = launch.spawn();
    kills.ready_max = kills.ready_max.max(process.wait_until_ready());
    process
}

/// Lets the clients work for a while and kills the process.
fn cycle(load: &Load, mut process: Process, life: u64, (time, dice): (Duration, &Dice)) {
    load.killed.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let (client, address) = (process.client(), process.address());
            let dice = dice.part(life * 100 + number);
            let worker = Worker { load, life, dice, client, address };
            scope.spawn(|| worker.run());
        }
        let (client, dice) = (process.client(), dice.part(life * 100 + WORKERS));
        scope.spawn(move || answer_checks(load, client, life, dice));
        std::thread::sleep(time);
        load.killed.store(true, Ordering::SeqCst);
        process.kill();
    });
    process.check_log();
}

/// The state of every transaction, page by page. One that waits for its next check moves, and may be
/// met twice or not at all.
fn list(client: &mut Client) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/transactions?limit=100{cursor}")).unwrap().expect(200);
        for transaction in page["transactions"].as_array().unwrap() {
            let text = |field: &str| transaction[field].as_str().unwrap().to_owned();
            all.insert(text("id"), text("state"));
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// Compares what the server says with what is known; decides about some that are open.
fn settle(load: &Load, client: &mut Client, life: u64) -> (usize, usize) {
    let mut listed = list(client);
    let known: Vec<String> = {
        let mut book = load.book.lock().unwrap();
        for (id, transaction) in &mut book.transactions {
            let state = listed.entry(id.clone()).or_insert_with(|| {
                let view = client.get(&format!("/v1/transactions/{id}")).unwrap().expect(200);
                view["state"].as_str().unwrap().to_owned()
            });
            transaction.seen(state);
            if state == "unresolved" {
                transaction.spent(life);
            }
        }
        let unknown: Vec<_> =
            listed.iter().filter(|(id, _)| !book.transactions.contains_key(*id)).collect();
        assert!(unknown.len() <= book.open.len(), "nobody prepared some of {unknown:?}");
        // Nobody knew their ids, so nobody can have decided about them.
        let is_open = |state: &str| matches!(state, "prepared" | "unresolved");
        assert!(unknown.iter().all(|(_, state)| is_open(state)), "{unknown:?}");
        book.transactions.keys().cloned().collect()
    };
    for (place, id) in known.iter().enumerate() {
        let is_open = load.book.lock().unwrap().transactions[id].decided.is_none();
        let decision = [Some(Decision::Commit), Some(Decision::Rollback), None][place % 3];
        if let (true, Some(decision)) = (is_open, decision) {
            assert!(decide(load, client, id, decision).is_ok());
        }
    }
    let unresolved = listed.values().filter(|state| *state == "unresolved").count();
    (listed.len(), unresolved)
}

/// Waits until nothing is left to be delivered, and reads all logs.
fn read_logs(client: &mut Client) -> HashMap<u64, Delivered> {
    wait_for("everything committed to be delivered", || {
        let left = |topic: &&str| logs::has_overdue(client, topic, wall_ms() + 60_000);
        (!TOPICS.iter().any(left)).then_some(())
    });
    let mut delivered = HashMap::new();
    for topic in TOPICS {
        logs::read_log(client, topic, 0, |message| {
            let twice = delivered.insert(read_body(&message.body), message.clone());
            assert!(twice.is_none(), "delivered twice: {message:?} {twice:?}");
        });
    }
    delivered
}

fn make_topics(client: &mut Client) {
    for topic in TOPICS {
        let settings = json!({ "partitions": 1 });
        client.put(&format!("/v1/topics/{topic}"), &settings).unwrap().expect(201);
    }
}

#[test]
fn g3_g29_g30_g31_g32_decisions_survive_every_kill_and_every_lost_answer() {
    let cycles = number_from_environment("PUNCTUAL_KILL_TRANSACTIONS_CYCLES", CYCLES);
    let seed = number_from_environment("PUNCTUAL_KILL_SEED", wall_ms());
    eprintln!("seed {seed}, {cycles} cycles");
    let life_max = if cycles >= CYCLES_LONG { 4000 } else { 1500 };
    let directory = tempfile::tempdir().unwrap();
    // The least memory there is, so that tables are written out and checkpoints made.
    let launch = Launch::on(directory.path().join("data")).with("PUNCTUAL_STORE__MEMORY", "16MiB");
    let mut dice = Dice::new(seed);
    let (load, started, mut kills) = (Load::default(), Instant::now(), Kills::default());
    // Every start and every kill is a life of its own.
    let life = |kills: &Kills| kills.under_load + kills.while_starting;
    for number in 0..cycles {
        let process = start(&launch, &mut dice, &mut kills);
        if number == 0 {
            make_topics(&mut process.client());
        }
        let time = Duration::from_millis(dice.within(100, life_max));
        cycle(&load, process, life(&kills), (time, &Dice::new(seed)));
        kills.under_load += 1;
    }
    let loaded = started.elapsed();

    let process = start(&launch, &mut dice, &mut kills);
    let mut client = process.client();
    let (listed, unresolved) = settle(&load, &mut client, life(&kills));
    let mut delivered = read_logs(&mut client);
    let book = load.book.lock().unwrap();
    let came: u64 =
        book.transactions.values().map(|transaction| transaction.check(&mut delivered)).sum();
    assert!(delivered.is_empty(), "half messages came out: {delivered:?}");
    let decided =
        |decision| book.transactions.values().filter(|one| one.decided == Some(decision)).count();
    let (committed, rolled_back) = (decided(Decision::Commit), decided(Decision::Rollback));
    process.check_log();
    eprintln!(
        "{listed} transactions, {committed} committed, {rolled_back} rolled back, {unresolved} \
         unresolved, {came} messages delivered\n{:?}\n{kills:?}\nload {loaded:?}, all {:?}",
        load.tally.lock().unwrap(),
        started.elapsed()
    );
    assert!(committed > 0 && rolled_back > 0 && came > 0);
}

/// Draws checks until every transaction has got `each` more.
fn draw(client: &mut Client, drawn: &mut HashMap<String, Vec<u64>>, ids: &[String], each: usize) {
    wait_for("all checks", || {
        let request = json!({ "wait": "2s", "max": 7 });
        let answer = client.post(&checks_path(), &request).unwrap().expect(200);
        for check in answer["checks"].as_array().unwrap() {
            let id = check["transaction"].as_str().unwrap().to_owned();
            drawn.entry(id).or_default().push(check["attempt"].as_u64().unwrap());
        }
        ids.iter().all(|id| drawn.get(id).is_some_and(|got| got.len() >= each)).then_some(())
    });
}

fn wait_for_state(client: &mut Client, ids: &[String], state: &str) {
    wait_for(state, || {
        let mut states = ids.iter().map(|id| {
            let view = client.get(&format!("/v1/transactions/{id}")).unwrap().expect(200);
            view["state"].as_str().unwrap().to_owned()
        });
        states.all(|one| one == state).then_some(())
    });
}

#[test]
fn g29_g32_a_transaction_nobody_decides_is_checked_as_often_as_configured() {
    let directory = tempfile::tempdir().unwrap();
    let process = Launch::on(directory.path().join("data")).start();
    let mut client = process.client();
    make_topics(&mut client);
    let mut ids = Vec::new();
    for serial in 0..SILENT {
        let (has_own_ids, from_commit) = (false, true);
        let (serials, sent_ms) = (vec![serial], wall_ms());
        let prepare = Prepare { serials, has_own_ids, delay: 0, from_commit, sent_ms, life: 0 };
        let answer = client.post("/v1/transactions", &prepare.request()).unwrap().expect(201);
        ids.push(answer["id"].as_str().unwrap().to_owned());
    }
    let all: Vec<u64> = (1..=CHECKS).collect();
    let mut drawn = HashMap::new();
    draw(&mut client, &mut drawn, &ids, all.len());
    wait_for_state(&mut client, &ids, "unresolved");
    let more = client.post(&checks_path(), &json!({ "wait": "0s", "max": 10 })).unwrap();
    assert_eq!(more.expect(200)["checks"].as_array().unwrap().len(), 0);
    assert!(drawn.values().all(|attempts| *attempts == all), "{drawn:?}");

    let again = &ids[..5];
    for id in again {
        client.post(&format!("/v1/transactions/{id}/resume"), &json!({})).unwrap().expect(200);
    }
    drawn.clear();
    draw(&mut client, &mut drawn, again, all.len());
    wait_for_state(&mut client, again, "unresolved");
    assert!(drawn.len() == again.len() && drawn.values().all(|attempts| *attempts == all));

    assert!(read_logs(&mut client).is_empty(), "a half message came out");
    let commit = |client: &mut Client, id: &String| {
        client.post(&format!("/v1/transactions/{id}/commit"), &json!({})).unwrap().expect(200)
    };
    let views: Vec<Value> = ids.iter().map(|id| commit(&mut client, id)).collect();
    assert!(views.iter().all(|view| view["state"] == "committed"), "{views:?}");
    assert_eq!(read_logs(&mut client).len(), ids.len());
    process.check_log();
}
