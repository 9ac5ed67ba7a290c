//! A real server on a free port with a directory of its own, and raw requests to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use punctual_server::app::{self, Ready, ServeError};
use punctual_server::config::{Config, ConfigError, ConfigFile, Source};
use punctual_server::live::{Live, Reload};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest wait for anything; only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often something is looked at that gives no signal. Others need the machine meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// What every server of a test is started with: ports that the system chooses.
const USUAL: [(&str, &str); 2] = [("http.listen", "127.0.0.1:0"), ("kafka.listen", "127.0.0.1:0")];

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Where Kafka clients are answered.
    pub(crate) kafka: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Result<(), ServeError>>>,
    runtime: Runtime,
    /// While it runs: it leads to the store.
    live: Option<Live>,
    /// What it was started with.
    file: ConfigFile,
    _data: TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.body))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        let data = TempDir::new().expect("a directory");
        Self::serving(data, settings, None)
    }

    /// Another server on the same data, once this one has ended.
    pub(crate) fn restarted(self, settings: &[(&str, &str)]) -> Self {
        self.restarted_after(settings, |_data| {})
    }

    /// The same, after something was done to the data while nobody used it.
    pub(crate) fn restarted_after(
        mut self,
        settings: &[(&str, &str)],
        meanwhile: impl FnOnce(&std::path::Path),
    ) -> Self {
        self.join().expect("it ends regularly");
        meanwhile(&self.data());
        let elsewhere = TempDir::new().expect("a directory");
        let data = std::mem::replace(&mut self._data, elsewhere);
        // Whatever it still has is closed before others open it.
        drop(self);
        Self::serving(data, settings, None)
    }

    /// Where the data is.
    pub(crate) fn data(&self) -> std::path::PathBuf {
        self._data.path().join("data")
    }

    /// On a clock that stands still at this time until it is moved.
    pub(crate) fn on_virtual_time(start: &str) -> Self {
        Self::on_virtual_time_with(start, &[])
    }

    pub(crate) fn on_virtual_time_with(start: &str, settings: &[(&str, &str)]) -> Self {
        let data = TempDir::new().expect("a directory");
        let settings = [&[("store.durability", "os")], settings].concat();
        Self::serving(data, &settings, Some(start))
    }

    fn serving(data: TempDir, settings: &[(&str, &str)], virtual_time: Option<&str>) -> Self {
        let mut file = ConfigFile::default();
        let path = data.path().join("data").display().to_string();
        for (name, value) in USUAL.iter().chain(&[("store.data", &*path)]).chain(settings) {
            file.set(name, (*value).to_owned(), Source::Flag("test")).expect("a known key");
        }
        let mut config = Config::try_from(&file).expect("a valid configuration");
        if let Some(start) = virtual_time {
            config = config.with_virtual_time(start).expect("a time");
        }
        let runtime = Runtime::new().expect("a runtime");
        let (ready, started) = oneshot::channel::<Ready>();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(app::serve(config, ready, async {
            let _sender_gone = stopped.await.is_err();
        }));
        let started = runtime.block_on(async { timeout(PATIENCE, started).await });
        let Ok(ready) = started.expect("it starts in time") else {
            panic!("it does not start: {:?}", runtime.block_on(serving));
        };
        let Ready { http: address, kafka, live, .. } = ready;
        let (stop, serving) = (Some(stop), Some(serving));
        let live = Some(live);
        Self { address, kafka, stop, serving, runtime, live, file, _data: data }
    }

    /// Takes other settings over those it was started with, as a SIGHUP does.
    pub(crate) fn reload(&self, settings: &[(&str, &str)]) {
        self.try_reload(settings).expect("a valid configuration");
    }

    /// The same for settings that may be refused.
    pub(crate) fn try_reload(&self, settings: &[(&str, &str)]) -> Result<(), ConfigError> {
        let mut fresh = self.file.clone();
        for (name, value) in settings {
            fresh.set(name, (*value).to_owned(), Source::Flag("test")).expect("a known key");
        }
        let live = self.live.clone().expect("it runs");
        let mut reload = Reload::new(live, self.file.clone());
        reload.take(fresh).map(drop)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// Asks to stop; what is under way goes on.
    pub(crate) fn stop(&mut self) {
        let _gone = self.stop.take().map(|stop| stop.send(()).is_err());
    }

    /// Waits for the end.
    pub(crate) fn join(&mut self) -> Result<(), ServeError> {
        self.stop();
        let serving = self.serving.take().expect("joined once");
        let ended = self.runtime.block_on(async { timeout(PATIENCE, serving).await });
        self.live = None;
        ended.expect("it ends in time").expect("it does not panic")
    }

    /// Sends one request on a connection of its own and reads the whole answer.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses early may close before everything is sent.
        let _broken = stream.write_all(request).is_err();
        read_answer(&mut stream)
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.raw(&request)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, json: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, "content-type: application/json\r\n", json.as_ref())
    }

    pub(crate) fn put(&self, path: &str, json: impl AsRef<[u8]>) -> Answer {
        self.request("PUT", path, "content-type: application/json\r\n", json.as_ref())
    }

    pub(crate) fn patch(&self, path: &str, json: impl AsRef<[u8]>) -> Answer {
        self.request("PATCH", path, "content-type: application/json\r\n", json.as_ref())
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.request("DELETE", path, "", b"")
    }

    /// Sends a message that is due at once; its id.
    pub(crate) fn send(&self, topic: &str, message: &Value) -> String {
        let answer = self.post(&format!("/v1/topics/{topic}/messages"), message.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    /// What a receive of `{"max","wait","lease"}` gives.
    pub(crate) fn receive(&self, group: &str, ask: &Value) -> Vec<Value> {
        let answer = self.post(&format!("{group}/receive"), ask.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["messages"].as_array().expect("messages").clone()
    }

    /// Receives until there are so many.
    pub(crate) fn receive_all(&self, group: &str, count: usize) -> Vec<Value> {
        let mut messages = Vec::new();
        while messages.len() < count {
            let more = self.receive(group, &json!({"max": 1000, "wait": "20s"}));
            assert!(!more.is_empty(), "{} of {count} came", messages.len());
            messages.extend(more);
        }
        messages
    }

    /// The words that an ack, nack or extend of one message answers.
    pub(crate) fn settle(&self, group: &str, call: &str, ask: &Value) -> Vec<String> {
        let answer = self.post(&format!("{group}/{call}"), ask.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let results = answer.json()["results"].as_array().expect("results").clone();
        results.iter().map(|one| one["result"].as_str().expect("a word").to_owned()).collect()
    }

    /// What a refused request must leave as it was.
    pub(crate) fn footprint(&self) -> (String, String) {
        let metrics = self.get("/metrics").body;
        let scheduled = metrics.lines().find(|line| line.starts_with("punctual_scheduled_total "));
        let scheduled = scheduled.expect("the metric").to_owned();
        (scheduled, self.get("/v1/topics").body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if let Some(serving) = self.serving.take() {
            let ended = self.runtime.block_on(async { timeout(PATIENCE, serving).await });
            // Where the test has failed already, that is what is told.
            assert!(ended.is_ok() || std::thread::panicking(), "the server does not end");
        }
    }
}

/// Asks until there is an answer, but not for ever.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Reads one answer, by its content-length or to the end.
pub(crate) fn read_answer(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(answer) = complete(&bytes) {
            return answer;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Answer { status: status(head), head: head.to_owned(), body: body.to_owned() }
}

fn complete(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let body = bytes[end + 4..].get(..length.parse().ok()?)?;
    let body = String::from_utf8_lossy(body).into_owned();
    Some(Answer { status: status(&head), head, body })
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Reads until the other side closes; how long that took, and what came.
pub(crate) fn until_closed(stream: &mut impl Read) -> (Duration, Vec<u8>) {
    let start = Instant::now();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("still open after {:?}: {error}", start.elapsed()),
    }
    (start.elapsed(), bytes)
}
