//! A connection of HTTP/1.1 that shows an answer while it arrives, as bytes.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::Server;

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    /// What was read and not asked for yet.
    read: Vec<u8>,
    /// Bytes of the body that were taken out of their chunks and not asked for yet.
    body: Vec<u8>,
    ended: bool,
}

/// The head of an answer.
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Head {
    /// All values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let of = |line: &'_ str| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.len())
        };
        let lines = self.text.lines().skip(1);
        lines.filter_map(|line| of(line).map(|length| line[line.len() - length..].trim())).collect()
    }

    /// The value of a header.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

impl Wire {
    pub(crate) fn open(server: &Server) -> Self {
        Self { stream: server.connect(), read: Vec::new(), body: Vec::new(), ended: false }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("it takes more");
    }

    /// Sends a piece of a body that is sent in chunks.
    pub(crate) fn send_chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk);
    }

    fn fill(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing comes: {error}"),
        }
    }

    fn find(&mut self, end: &[u8]) -> Option<usize> {
        loop {
            let found = self.read.windows(end.len()).position(|window| window == end);
            if found.is_some() {
                return found;
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// The head of the next answer that is a last one.
    pub(crate) fn head(&mut self) -> Head {
        loop {
            let end = self.find(b"\r\n\r\n").unwrap_or_else(|| panic!("no answer comes"));
            let text = String::from_utf8(self.read.drain(..end + 4).collect()).expect("a head");
            let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
            let status = status.expect("a status");
            (self.body, self.ended) = (Vec::new(), false);
            if status >= 200 {
                return Head { status, text };
            }
        }
    }

    /// The next chunk of the body; `None` at its end, however it comes.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let end = self.find(b"\r\n")?;
        let size: Vec<u8> = self.read.drain(..end + 2).collect();
        let size = String::from_utf8(size).expect("a size");
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        while self.read.len() < size + 2 {
            if !self.fill() {
                return None;
            }
        }
        let chunk: Vec<u8> = self.read.drain(..size + 2).take(size).collect();
        (size > 0).then_some(chunk)
    }

    /// The body: by its length, by chunks, or to the end.
    pub(crate) fn body(&mut self, head: &Head) -> Vec<u8> {
        if head.get("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                self.body.extend_from_slice(&chunk);
            }
            return std::mem::take(&mut self.body);
        }
        let length = head.get("content-length").map(|length| length.parse().expect("a length"));
        while length.is_none_or(|length| self.read.len() < length) && self.fill() {}
        let length = length.unwrap_or(self.read.len()).min(self.read.len());
        self.read.drain(..length).collect()
    }

    /// The next line of a body that is sent in chunks; `None` at its end.
    pub(crate) fn line(&mut self) -> Option<String> {
        loop {
            if let Some(place) = self.body.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.body.drain(..=place).take(place).collect();
                return Some(String::from_utf8(line).expect("text"));
            }
            if self.ended {
                assert!(self.body.is_empty(), "half a line");
                return None;
            }
            match self.chunk() {
                Some(chunk) => self.body.extend_from_slice(&chunk),
                None => self.ended = true,
            }
        }
    }

    /// The next piece of a body that is sent in chunks; nothing at its end.
    pub(crate) fn piece(&mut self) -> Vec<u8> {
        self.chunk().unwrap_or_default()
    }

    /// The first line of the next head, which is then gone.
    pub(crate) fn first_line(&mut self) -> String {
        let end = self.find(b"\r\n\r\n").unwrap_or_else(|| panic!("no answer comes"));
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("a head");
        head.lines().next().unwrap_or_default().to_owned()
    }

    /// The next line as JSON.
    pub(crate) fn json_line(&mut self) -> Value {
        let line = self.line().unwrap_or_else(|| panic!("the answer has ended"));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

/// One request on a connection of its own.
pub(crate) fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (Head, Vec<u8>) {
    let mut wire = Wire::open(server);
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    // A server that refuses early may close before everything is sent.
    let _broken = wire.stream.write_all(&request).is_err();
    let head = wire.head();
    let is_bare = method == "HEAD" || head.status == 204 || head.status == 304;
    let body = if is_bare { Vec::new() } else { wire.body(&head) };
    (head, body)
}
