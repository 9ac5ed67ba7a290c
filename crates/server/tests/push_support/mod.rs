//! Endpoints of our own for pushes: each sees every request and answers as a test wants.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{self, PATIENCE, Server};

/// Long enough for a push that must not happen to have happened.
pub(crate) const QUIET: Duration = Duration::from_millis(400);

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Seen {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("bodies of tests are text")
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.headers["ce-attempt"].parse().expect("a number")
    }
}

/// An endpoint on a port of its own.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    seen: Receiver<Seen>,
    connections: Arc<AtomicUsize>,
}

/// An answer with that status and body.
pub(crate) fn reply(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into()
}

impl Endpoint {
    /// One that answers each request with what `answer` says.
    pub(crate) fn start(answer: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::serving(move |stream, seen| {
            let mut writing = stream.try_clone().expect("a socket");
            let mut reading = BufReader::new(stream);
            while let Some(request) = read_request(&mut reading) {
                // The test may be over.
                let _over = seen.send(request.clone()).is_err();
                if writing.write_all(&answer(&request)).is_err() {
                    return;
                }
            }
        })
    }

    /// One that treats each connection as `serve` does.
    pub(crate) fn serving(
        serve: impl Fn(TcpStream, &Sender<Seen>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, seen) = channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let serve = Arc::new(serve);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let (serve, sender) = (Arc::clone(&serve), sender.clone());
                let stream = stream.expect("a connection");
                std::thread::spawn(move || serve(stream, &sender));
            }
        });
        Self { address, seen, connections }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in?x=1", self.address)
    }

    /// The next request.
    pub(crate) fn next(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("a request comes")
    }

    /// No request comes for a while.
    pub(crate) fn stays_quiet(&self, time: Duration) {
        match self.seen.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => {}
            unexpected => panic!("{unexpected:?}"),
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads one request; `None` at the end of the connection.
pub(crate) fn read_request(stream: &mut impl BufRead) -> Option<Seen> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut headers = HashMap::new();
    loop {
        let mut field = String::new();
        stream.read_line(&mut field).ok()?;
        match field.trim_end().split_once(": ") {
            Some((name, value)) => {
                let old = headers.insert(name.to_owned(), value.to_owned());
                assert!(old.is_none(), "{name} comes twice");
            }
            None => break,
        }
    }
    let length = headers.get("content-length").map_or(0, |text| text.parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Seen { line: line.trim_end().to_owned(), headers, body, at: Instant::now() })
}

/// A server that may push to this machine.
pub(crate) fn server() -> Server {
    Server::with(&[("push.allow", "127.0.0.0/8")])
}

pub(crate) fn put_group(server: &Server, topic: &str, settings: &Value) {
    let path = format!("/v1/topics/{topic}/groups/g");
    let headers = "content-type: application/json\r\n";
    let answer = server.request("PUT", &path, headers, settings.to_string().as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{} {}", answer.head, answer.body);
}

/// Makes a group that pushes to `url`, with the rungs of its ladder.
pub(crate) fn push_to(server: &Server, topic: &str, url: &str, ladder: &[&str]) {
    let settings = json!({"push": {"url": url}, "retry": {"ladder": ladder}});
    put_group(server, topic, &settings);
}

/// Sends a message that is due at once; its id.
pub(crate) fn send(server: &Server, topic: &str, message: &Value) -> String {
    let answer = server.post(&format!("/v1/topics/{topic}/messages"), message.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// Waits until the group shows what is wanted.
pub(crate) fn wait_for(server: &Server, topic: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    support::wait_for("what the group is to show", || {
        let group = server.get(&format!("/v1/topics/{topic}/groups/g")).json();
        Some(group).filter(|group| wanted(group))
    })
}

/// Waits until everything is settled.
pub(crate) fn wait_until_done(server: &Server, topic: &str) {
    wait_for(server, topic, |group| {
        group["lag"] == 0 && group["in_flight"] == 0 && group["retrying"] == 0
    });
}

/// Waits for a dead letter.
pub(crate) fn wait_for_dead(server: &Server, topic: &str) -> Value {
    support::wait_for("a dead letter", || {
        let dead = server.get(&format!("/v1/topics/{topic}/groups/g/dead")).json();
        dead["messages"].get(0).cloned()
    })
}

pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("the metric").parse().expect("a number")
}
