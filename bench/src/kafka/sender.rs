//! The bare sender: a process that does nothing but send a file, over and over, to whoever connects.
//! Its rate is what this machine can do.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::args::{SendFileOptions, SendingWord};
use crate::measure;
use crate::report::say;

/// Handed to the operating system at once.
const PIECE_BYTES: usize = 1 << 20;
/// Read and written at once.
const COPY_BYTES: usize = 256 << 10;

/// Serves until it is killed.
#[expect(clippy::disallowed_methods, reason = "the file is sent as it is, without the engine")]
pub(crate) fn run(options: &SendFileOptions) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    say(&listener.local_addr()?.to_string());
    for stream in listener.incoming() {
        let (stream, file) = (stream?, File::open(&options.file)?);
        let sending = options.sending;
        std::thread::Builder::new().name("bench-sender".to_owned()).spawn(move || {
            // Whoever drains it goes when it has seen enough.
            send(&stream, &file, sending).ok();
        })?;
    }
    Ok(())
}

fn send(mut stream: &TcpStream, file: &File, sending: SendingWord) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let mut position = 0;
        while position < length {
            match sending {
                SendingWord::Sendfile => {
                    rustix::fs::sendfile(stream, file, Some(&mut position), PIECE_BYTES)?;
                }
                SendingWord::Copy => {
                    let read = file.read_at(&mut buffer, position)?;
                    stream.write_all(&buffer[..read])?;
                    position += read as u64;
                }
            }
        }
    }
}

/// A bare sender as a child of this process.
pub(crate) struct Sender {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Sender {
    pub(crate) fn start(file: &Path, sending: SendingWord) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("send-file")
            .arg("--file")
            .arg(file)
            .args(["--sending", sending.word()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().context("the sender says nothing")?;
        let read = BufReader::new(out).read_line(&mut line);
        let mut sender = Self { child, address: (Ipv4Addr::LOCALHOST, 0).into() };
        read?;
        sender.address = line.trim().parse().context("the sender did not say where it is")?;
        Ok(sender)
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        let (user, system) = measure::cpu_of(self.child.id())?;
        Ok(user + system)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // It is gone, or ends now.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The largest file of records below a directory.
pub(crate) fn largest_log(dir: &Path) -> Result<PathBuf> {
    let mut largest: Option<(u64, PathBuf)> = None;
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let (path, about) = (entry.path(), entry.metadata()?);
            if about.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "log") {
                largest = largest.max(Some((about.len(), path)));
            }
        }
    }
    Ok(largest.context("there is no log")?.1)
}
