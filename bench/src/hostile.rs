//! Clients that mean no good, and what somebody well-behaved notices of them.
//!
//! A witness sends one message after the other on a connection of its own, at an unhurried pace, and
//! notes how long each answer takes: first while nobody disturbs it, then while an attack goes on.
//! The attackers share the machine with the server, so they run at the lowest priority: what is
//! measured is what the server lets them take, not what the scheduler does.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_model::{Clock as _, SystemClock};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use crate::args::{Common, HostileOptions};
use crate::attacks::{ATTACKS, Attack, State};
use crate::measure::{Latency, memory_of};
use crate::report::{Report, Table, say};
use crate::rig::{Place, pause};
use crate::server::{ANSWER_MAX, Server, request};

/// Pause between two requests of the witness.
const PACE: Duration = Duration::from_millis(2);
/// Longest time for an attack to get going.
const READY_MAX: Duration = Duration::from_secs(30);
/// The least that the server is to bear at one time.
const CONNECTIONS_MAX: &str = "11000";
/// The lowest priority there is.
const LOWEST: i32 = 19;

pub(crate) fn run(common: &Common, options: &HostileOptions) -> Result<()> {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
    let settings = json!({ "seconds_each": options.secs, "pace_ms": 2, "attackers_nice": LOWEST });
    let mut report = Report::new("hostile", common, settings);
    let columns =
        ["quiet p50", "quiet p99", "p50", "p99", "p99 ratio", "RSS, MB", "requests", "attacks"];
    let mut table = Table::new("attack, ms", &columns);
    let mut worst = 0f64;
    for secure in [false, true] {
        let place = Place::fresh(common, 1 << 30)?;
        let scene = Scene::set(common, options, &place, secure)?;
        for attack in ATTACKS.iter().filter(|attack| attack.secure == secure) {
            let found = scene.bear(attack, Duration::from_secs(options.secs))?;
            say(&format!("{:<40} p99 {:>8.3} ms", attack.name, found[3]));
            worst = worst.max(found[4]);
            table.row(attack.name, found);
        }
        scene.end()?;
        place.clear()?;
    }
    report.table(table);
    report.figure("largest p99 ratio", worst);
    report.finish(common)
}

/// A server, and how one talks to it.
struct Scene {
    server: Server,
    tls: Option<Arc<ClientConfig>>,
}

impl Scene {
    fn set(common: &Common, options: &HostileOptions, place: &Place, secure: bool) -> Result<Self> {
        let mut variables = vec![("PUNCTUAL_HTTP__CONNECTIONS_MAX", CONNECTIONS_MAX.to_owned())];
        let mut tls = None;
        if secure {
            let (cert, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
            tls = Some(Arc::new(certify(&cert, &key)?));
            variables.push(("PUNCTUAL_TLS__CERT_FILE", cert.display().to_string()));
            variables.push(("PUNCTUAL_TLS__KEY_FILE", key.display().to_string()));
        }
        let data = place.path().join("data");
        let server = Server::start_with(&options.server, &data, common, &variables)?;
        Ok(Self { server, tls })
    }

    /// The figures of one attack, in the order of the columns.
    fn bear(&self, attack: &Attack, time: Duration) -> Result<Vec<f64>> {
        let mut witness = Witness::connect(self.server.address, self.tls.clone())?;
        let quiet = witness.watch(time)?.millis();
        // The peak is counted from now on.
        fs::write(format!("/proc/{}/clear_refs", self.server.pid()), "5")?;
        let state = State::default();
        let (attacked, attacks) = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("attacker".to_owned());
            let work = || {
                // Without it the figures are worse, no more.
                let _unheard = setpriority_process(None, LOWEST).is_err();
                (attack.run)(self.server.address, &state)
            };
            let attacker = builder.spawn_scoped(scope, work)?;
            let watched = self.watch_ready(&state, &mut witness, time);
            state.stop();
            let attacks = attacker.join().ok().context("an attacker ended by a panic")??;
            Ok::<_, anyhow::Error>((watched?, attacks))
        })?;
        let peak = memory_of(self.server.pid()).peak as f64 / 1e6;
        let (requests, attacked) = (attacked.len() as f64, attacked.millis());
        let ratio = attacked[2] / quiet[2].max(1e-3);
        let attacks = attacks as f64;
        Ok(vec![quiet[0], quiet[2], attacked[0], attacked[2], ratio, peak, requests, attacks])
    }

    fn watch_ready(&self, state: &State, witness: &mut Witness, time: Duration) -> Result<Latency> {
        ensure!(state.wait_until_ready(READY_MAX), "the attack did not get going");
        witness.watch(time)
    }

    fn end(mut self) -> Result<()> {
        self.server.stop()
    }
}

/// A certificate for localhost in these files; a client that trusts it.
fn certify(cert: &Path, key: &Path) -> Result<ClientConfig> {
    let CertifiedKey { cert: own, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()])?;
    fs::write(cert, own.pem())?;
    fs::write(key, signing_key.serialize_pem())?;
    let mut roots = RootCertStore::empty();
    roots.add(own.der().clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Somebody who does as one should.
struct Witness {
    stream: Box<dyn Stream>,
    request: Vec<u8>,
}

impl Witness {
    fn connect(address: SocketAddr, tls: Option<Arc<ClientConfig>>) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::try_from("localhost")?;
                Box::new(StreamOwned::new(ClientConnection::new(config, name)?, stream))
            }
        };
        let json = json!({ "body": "x".repeat(100), "delay": "10h" }).to_string();
        let request = request("POST", "/v1/topics/witness/messages", json.as_bytes());
        Ok(Self { stream, request })
    }

    /// Sends at its pace for so long.
    fn watch(&mut self, time: Duration) -> Result<Latency> {
        let clock = SystemClock::new();
        let mut latency = Latency::new();
        while clock.read().monotonic < time {
            let before = clock.read().monotonic;
            self.stream.write_all(&self.request)?;
            self.stream.flush()?;
            self.answer()?;
            latency.note(clock.read().monotonic - before);
            pause(PACE);
        }
        Ok(latency)
    }

    fn answer(&mut self) -> Result<()> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        // The answer to one message ends with its only object.
        while !bytes.ends_with(b"}") {
            let count = self.stream.read(&mut piece).context("no answer for half a minute")?;
            ensure!(count > 0, "the server closed the connection of the witness");
            bytes.extend_from_slice(&piece[..count]);
        }
        ensure!(bytes.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&bytes));
        Ok(())
    }
}
