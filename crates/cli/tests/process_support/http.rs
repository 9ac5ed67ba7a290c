//! A client as small as it can be: one connection, kept open, one request after the other.
//!
//! A request that gets no answer is an error and its outcome unknown; nothing is repeated.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to the server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// What the server said.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub json: Value,
}

impl Answer {
    /// The stable code of a refusal, or nothing.
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    /// The answer again if it has that status.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.json);
        self.json
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Waits at most so long for an answer.
    pub fn patience(self, longest: Duration) -> io::Result<Self> {
        self.stream.get_ref().set_read_timeout(Some(longest))?;
        self.stream.get_ref().set_write_timeout(Some(longest))?;
        Ok(self)
    }

    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.call("GET", path, None)
    }

    pub fn delete(&mut self, path: &str) -> io::Result<Answer> {
        self.call("DELETE", path, None)
    }

    pub fn post(&mut self, path: &str, json: &Value) -> io::Result<Answer> {
        self.call("POST", path, Some(json))
    }

    pub fn put(&mut self, path: &str, json: &Value) -> io::Result<Answer> {
        self.call("PUT", path, Some(json))
    }

    pub fn patch(&mut self, path: &str, json: &Value) -> io::Result<Answer> {
        self.call("PATCH", path, Some(json))
    }

    fn call(&mut self, method: &str, path: &str, json: Option<&Value>) -> io::Result<Answer> {
        let content = json.map(Value::to_string).unwrap_or_default();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n",
            content.len()
        );
        if json.is_some() {
            request.push_str("content-type: application/json\r\n");
        }
        request.push_str("\r\n");
        request.push_str(&content);
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| broken(&status_line))?;
        let mut length = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| broken(&line))?;
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_not_a_number| broken(&line))?;
            }
        }
        let mut content = vec![0; length];
        self.stream.read_exact(&mut content)?;
        let json = serde_json::from_slice(&content)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Answer { status, json })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn broken(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {line:?}"))
}
