//! The real program as a process of its own, ended by its id and by nothing broader.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::http::Client;

/// How to start the program.
#[derive(Clone, Debug)]
pub struct Launch {
    program: PathBuf,
    data: PathBuf,
    http: SocketAddr,
    kafka: Option<SocketAddr>,
    variables: Vec<(String, String)>,
    config: Option<PathBuf>,
}

impl Launch {
    pub fn on(data: impl AsRef<Path>) -> Self {
        let (data, any) = (data.as_ref().to_owned(), SocketAddr::from(([127, 0, 0, 1], 0)));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_punctual"));
        Self { program, data, http: any, kafka: Some(any), variables: Vec::new(), config: None }
    }

    /// Listens at an address that must be free, instead of one that the system chooses.
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.http = address;
        self
    }

    /// Listens for Kafka clients at an address that must be free.
    pub fn kafka_at(mut self, address: SocketAddr) -> Self {
        self.kafka = Some(address);
        self
    }

    /// Says nothing about a listener for Kafka clients.
    pub fn without_kafka(mut self) -> Self {
        self.kafka = None;
        self
    }

    /// Another build of the program.
    pub fn program(mut self, path: impl AsRef<Path>) -> Self {
        self.program = path.as_ref().to_owned();
        self
    }

    /// Sets an environment variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a configuration file.
    pub fn config(mut self, path: impl AsRef<Path>) -> Self {
        self.config = Some(path.as_ref().to_owned());
        self
    }

    /// Starts it without waiting for it to be ready.
    pub fn spawn(&self) -> Process {
        let started = Instant::now();
        let mut child = Command::new(&self.program)
            .args(["serve", "--http", &self.http.to_string()])
            .args(self.kafka.iter().flat_map(|at| ["--kafka".to_owned(), at.to_string()]))
            .arg("--data")
            .arg(&self.data)
            .args(self.config.iter().flat_map(|path| ["--config".as_ref(), path.as_os_str()]))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = mpsc::channel();
        let reading = Arc::clone(&log);
        std::thread::Builder::new()
            .name("read the log".to_owned())
            .spawn(move || read_log(stderr, &tell, &reading))
            .unwrap();
        Process { child, told, log, started, listening: None }
    }

    /// Starts it and waits until it is ready.
    pub fn start(&self) -> Process {
        let mut process = self.spawn();
        process.wait_until_ready();
        process
    }
}

/// Reads until the process has ended, so that it never waits for somebody to read.
fn read_log(stderr: ChildStderr, tell: &mpsc::Sender<Listening>, log: &Mutex<Vec<String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Some(listening) = listening(&line) {
            // Nobody waits for it when the process was killed meanwhile.
            let _unheard = tell.send(listening).is_err();
        }
        log.lock().unwrap().push(line);
    }
}

/// Where a process listens, as it says when it is ready.
#[derive(Clone, Copy, Debug)]
struct Listening {
    http: SocketAddr,
    kafka: Option<SocketAddr>,
}

fn listening(line: &str) -> Option<Listening> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(line) {
        let address = |name: &str| json["fields"][name].as_str()?.parse().ok();
        let ready = json["message"] == "ready";
        return ready.then(|| address("http")).flatten().map(|http| {
            let kafka = address("kafka");
            Listening { http, kafka }
        });
    }
    let address = |name: &str| {
        let rest = line.split(name).nth(1)?;
        rest.split(' ').next()?.trim_matches('"').parse().ok()
    };
    let http = line.contains(" ready ").then(|| address("http=")).flatten()?;
    Some(Listening { http, kafka: address("kafka=") })
}

/// The running program.
#[derive(Debug)]
pub struct Process {
    child: Child,
    told: Receiver<Listening>,
    log: Arc<Mutex<Vec<String>>>,
    started: Instant,
    listening: Option<Listening>,
}

impl Process {
    /// Waits for the line that says ready; answers how long after the start it came.
    pub fn wait_until_ready(&mut self) -> Duration {
        match self.told.recv_timeout(PATIENCE) {
            Ok(listening) => self.listening = Some(listening),
            Err(error) => panic!("not ready ({error}): {}", self.log()),
        }
        self.started.elapsed()
    }

    /// Whether it has said ready, without waiting.
    pub fn is_ready(&mut self) -> bool {
        if let Ok(listening) = self.told.try_recv() {
            self.listening = Some(listening);
        }
        self.listening.is_some()
    }

    pub fn address(&self) -> SocketAddr {
        self.listening.unwrap().http
    }

    /// Where it listens for Kafka clients.
    pub fn kafka(&self) -> SocketAddr {
        self.listening.unwrap().kafka.unwrap()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address()).unwrap()
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of the log with this text; answers the line.
    pub fn wait_for_line(&self, text: &str) -> String {
        let find = || {
            let log = self.log.lock().unwrap();
            log.iter().find(|line| line.contains(text)).cloned()
        };
        super::wait_for(text, find).0
    }

    /// Everything it has written to its log.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends the signal of that name to it and to nothing else.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for it to end by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        super::wait_for("the process to end", || self.child.try_wait().unwrap()).0
    }

    /// Fails when it has panicked.
    pub fn check_panics(&self) {
        let log = self.log.lock().unwrap();
        let found: Vec<&String> = log.iter().filter(|line| line.contains("panicked")).collect();
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Fails when it has reported an error or has panicked.
    pub fn check_log(&self) {
        let log = self.log.lock().unwrap();
        let bad = |line: &&String| line.contains(" ERROR ") || line.contains("panicked");
        let found: Vec<&String> = log.iter().filter(bad).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().is_err();
        let _gone = self.child.wait().is_err();
        // Made by libfaketime for this process, which had no chance to remove it.
        for name in ["faketime_shm_", "sem.faketime_sem_"] {
            let path = format!("/dev/shm/{name}{}", self.child.id());
            let _never_there = std::fs::remove_file(path).is_err();
        }
    }
}
