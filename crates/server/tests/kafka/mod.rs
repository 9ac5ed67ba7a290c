//! A small Kafka client for tests: requests of any version, raw frames, and what comes back.

pub(crate) mod batches;
pub(crate) mod fetches;

pub(crate) mod scram;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::{Bytes, BytesMut};
use punctual_kafka_wire::Request;
use punctual_kafka_wire::frame;

use crate::support::{PATIENCE, Server};

/// What the client calls itself.
pub(crate) const CLIENT_ID: &str = "test";

/// A connection to the Kafka listener.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    last: i32,
}

impl Client {
    /// Connects to a server.
    pub(crate) fn connect(server: &Server) -> Self {
        Self::at(server.kafka.expect("it listens for Kafka clients"))
    }

    /// Connects to an address.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks over anything.
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, last: 0 }
    }

    /// Sends a request and reads its answer.
    pub(crate) fn call<Q: Request>(&mut self, version: i16, request: &Q) -> Q::Response {
        let id = self.send(version, request);
        let (answered, response) = self.receive::<Q>(version);
        assert_eq!(answered, id, "{}", Q::NAME);
        response
    }

    /// Sends a request without waiting; its number.
    pub(crate) fn send<Q: Request>(&mut self, version: i16, request: &Q) -> i32 {
        self.last += 1;
        let frame = frame::call(self.last, version, Some(CLIENT_ID), request).expect("a frame");
        self.stream.write_all(&frame).expect("it is taken");
        self.last
    }

    /// Reads the next answer, which must be one to such a request.
    pub(crate) fn receive<Q: Request>(&mut self, version: i16) -> (i32, Q::Response) {
        let frame = self.frame().expect("an answer");
        frame::answer::<Q>(frame, version)
            .unwrap_or_else(|error| panic!("{} {version}: {error}", Q::NAME))
    }

    /// Sends these bytes as they are. A server that refuses early may have closed already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends these bytes with their length before them.
    pub(crate) fn sized(&mut self, bytes: &[u8]) {
        let length = i32::try_from(bytes.len()).expect("a small frame");
        self.stream.write_all(&length.to_be_bytes()).expect("it is taken");
        self.stream.write_all(bytes).expect("it is taken");
    }

    /// The next frame without its length, or how the connection ended.
    pub(crate) fn frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
        let mut body = BytesMut::zeroed(length);
        self.stream.read_exact(&mut body)?;
        Ok(body.freeze())
    }

    /// Whether the server ends the connection without another answer.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => {
                let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                assert!(!kinds.contains(&error.kind()), "it is silent: {error}");
                true
            }
        }
    }
}
