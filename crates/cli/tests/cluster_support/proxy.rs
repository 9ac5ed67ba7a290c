//! A stretch of network that can be cut: a proxy between one node and one service.
//!
//! Cut, it behaves as a network does: connections stay open, nothing comes through, new ones are taken
//! and lead nowhere. What was sent meanwhile comes through when it is mended.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// The proxy, open until it is cut.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    cut: bool,
    closed: bool,
}

impl Gate {
    /// Waits while it is cut; false when there is nothing to wait for any more.
    fn pass(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while state.cut && !state.closed {
            state = self.changed.wait(state).unwrap();
        }
        !state.closed
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Proxy {
    pub fn to(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Arc::new(Gate::default());
        let watched = Arc::clone(&gate);
        named("proxy", move || {
            for client in listener.incoming().map_while(Result::ok) {
                if watched.state.lock().unwrap().closed {
                    return;
                }
                let gate = Arc::clone(&watched);
                named("proxied connection", move || connect(client, service, &gate));
            }
        });
        Self { address, gate }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn cut(&self) {
        self.gate.set(|state| state.cut = true);
    }

    pub fn mend(&self) {
        self.gate.set(|state| state.cut = false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.gate.set(|state| state.closed = true);
        // So that the listener looks up.
        let _woken = TcpStream::connect(self.address).is_ok();
    }
}

fn connect(client: TcpStream, service: SocketAddr, gate: &Arc<Gate>) {
    if !gate.pass() {
        return;
    }
    // A service that is down: the client's connection ends, as it would without us.
    let Ok(server) = TcpStream::connect(service) else { return };
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let back = Arc::clone(gate);
    named("proxied answers", move || forward(from_server, client, &back));
    forward(from_client, server, gate);
}

fn forward(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !gate.pass() || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // That it ended comes through no sooner than anything else.
    gate.pass();
    for stream in [from, to] {
        let _ended = stream.shutdown(Shutdown::Both).is_ok();
    }
}

fn named(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap();
}
