//! Answers that lie partly in files: how the stretches of a log get onto a connection.
//!
//! What was promised is sent to the byte: a file that is shorter than it was when the answer was
//! begun is an error, after which the connection has to be closed. A stretch that is not in the page
//! cache is read on a thread that may block, so that a cold disk holds up nobody else. Each step
//! moves a bounded piece, and whoever writes decides how long it may take.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::SliceFile;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::tasks::Tasks;

/// What one step sends out of a file at most.
const SENT_BYTES_MAX: u64 = 1 << 20;
/// What one step copies out of a file at most.
const COPIED_BYTES_MAX: u64 = 256 << 10;
/// What the disk is asked for ahead of time.
const AHEAD_BYTES: u64 = 4 << 20;
/// What is read at once only to have it in the page cache.
const WARMED_BYTES: u64 = 64 << 10;

/// A stretch of a file, less what was sent of it.
#[derive(Clone, Debug)]
pub(crate) struct FilePart {
    file: Arc<dyn SliceFile>,
    position: u64,
    left: u64,
    /// Up to here it was found in the page cache.
    warm_until: u64,
}

impl FilePart {
    /// So much of the file.
    pub(crate) const fn new(file: Arc<dyn SliceFile>, position: u64, length: u64) -> Self {
        Self { file, position, left: length, warm_until: position }
    }

    /// Whether the operating system can send it by itself.
    pub(crate) fn can_be_sent(&self) -> bool {
        self.file.descriptor().is_some()
    }

    /// Sends a piece of it as soon as the socket takes one. True when nothing is left.
    ///
    /// A dropped future has either sent a piece and taken it off, or sent nothing.
    ///
    /// # Errors
    /// As the operating system says; [`io::ErrorKind::UnexpectedEof`] when the file is too short.
    pub(crate) async fn send_piece(
        &mut self,
        socket: &TcpStream,
        tasks: &Tasks,
    ) -> io::Result<bool> {
        while self.left > 0 {
            socket.writable().await?;
            let count = self.left.min(SENT_BYTES_MAX);
            if self.position >= self.warm_until {
                if !self.is_warm(count) {
                    self.warm(count, tasks).await?;
                }
                self.warm_until = self.position + count;
            }
            let before = self.left;
            match socket.try_io(Interest::WRITABLE, || self.send(socket, count)) {
                // A fast reader is not to keep this thread from everybody else.
                Ok(()) => tokio::task::yield_now().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.left < before {
                break;
            }
        }
        Ok(self.left == 0)
    }

    /// Reads a piece of it. None when nothing is left.
    ///
    /// # Errors
    /// As the operating system says; [`io::ErrorKind::UnexpectedEof`] when the file is too short.
    pub(crate) async fn next_piece(&mut self, tasks: &Tasks) -> io::Result<Option<Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        let count = self.left.min(COPIED_BYTES_MAX);
        let piece = if self.can_be_sent() && self.is_warm(count) {
            self.read(count)?
        } else {
            let part = self.clone();
            let read = move || {
                part.ask_ahead();
                part.read(count)
            };
            tasks.blocking(read).await.map_err(io::Error::other)??
        };
        self.advance(piece.len())?;
        Ok(Some(piece))
    }

    fn advance(&mut self, sent: usize) -> io::Result<()> {
        if sent == 0 {
            return Err(too_short());
        }
        self.position += sent as u64;
        self.left -= sent as u64;
        Ok(())
    }

    /// Sends so much, or until the socket is full: then it is an error that says so, for only by that
    /// the socket is known to be full, but what was sent is taken off all the same.
    fn send(&mut self, socket: &TcpStream, count: u64) -> io::Result<()> {
        let enough = self.left - count;
        while self.left > enough {
            let file = self.file.descriptor().ok_or(io::ErrorKind::Unsupported)?;
            let (mut position, count) = (self.position, size(self.left - enough)?);
            match rustix::fs::sendfile(socket.as_fd(), file, Some(&mut position), count) {
                Ok(sent) => self.advance(sent)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the next `count` bytes are in the page cache, by the first and the last of them.
    fn is_warm(&self, count: u64) -> bool {
        let Some(file) = self.file.descriptor() else { return true };
        is_cached(file, self.position) && is_cached(file, self.position + count - 1)
    }

    /// Brings the next `count` bytes into the page cache.
    async fn warm(&self, count: u64, tasks: &Tasks) -> io::Result<()> {
        let part = self.clone();
        let read = move || {
            part.ask_ahead();
            let mut buffer = vec![0; size(WARMED_BYTES.min(count))?];
            let mut done = 0;
            while done < count {
                let wanted = size(WARMED_BYTES.min(count - done))?;
                let read = part.file.read_at(&mut buffer[..wanted], part.position + done)?;
                if read == 0 {
                    return Err(too_short());
                }
                done += read as u64;
            }
            Ok(())
        };
        tasks.blocking(read).await.map_err(io::Error::other)?
    }

    /// Lets the disk begin with what comes next.
    fn ask_ahead(&self) {
        let length = NonZeroU64::new(self.left.min(AHEAD_BYTES));
        if let (Some(file), Some(length)) = (self.file.descriptor(), length) {
            // It is only a wish.
            rustix::fs::fadvise(file, self.position, Some(length), Advice::WillNeed).ok();
        }
    }

    fn read(&self, count: u64) -> io::Result<Bytes> {
        let mut buffer = vec![0; size(count)?];
        let read = self.file.read_at(&mut buffer, self.position)?;
        if read < buffer.len() {
            return Err(too_short());
        }
        Ok(buffer.into())
    }
}

/// Whether a byte can be read without waiting for the disk. A file system that cannot tell is taken
/// at its best.
fn is_cached(file: BorrowedFd<'_>, position: u64) -> bool {
    let mut byte = [0];
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(file, &mut buffers, position, ReadWriteFlags::NOWAIT);
    read != Err(Errno::AGAIN)
}

fn size(count: u64) -> io::Result<usize> {
    usize::try_from(count).map_err(io::Error::other)
}

fn too_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a log file is shorter than it was")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A file, with or without a name for the operating system.
    #[derive(Debug)]
    struct Plain {
        file: File,
        known: bool,
    }

    impl SliceFile for Plain {
        fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
            self.file.read_at(buffer, position)
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            self.known.then(|| self.file.as_fd())
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
    }

    fn part(bytes: &[u8], known: bool, position: u64, length: u64) -> FilePart {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let file: Arc<dyn SliceFile> = Arc::new(Plain { file, known });
        FilePart::new(file, position, length)
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (here, there) = tokio::join!(TcpStream::connect(address), listener.accept());
        (here.unwrap(), there.unwrap().0)
    }

    #[tokio::test]
    async fn a_stretch_arrives_to_the_byte_and_nothing_beside_it() {
        let bytes = content(5_000_000);
        let mut part = part(&bytes, true, 1_234, 4_000_001);
        let (here, mut there) = pair().await;
        let tasks = Tasks::default();
        let sending = async {
            while !part.send_piece(&here, &tasks).await.unwrap() {}
            drop(here);
        };
        let mut arrived = Vec::new();
        let receiving = there.read_to_end(&mut arrived);
        let ((), read) =
            timeout(PATIENCE, async { tokio::join!(sending, receiving) }).await.unwrap();
        assert_eq!(read.unwrap(), 4_000_001);
        assert!(arrived == bytes[1_234..1_234 + 4_000_001]);
        assert_eq!(part.left, 0);
    }

    #[tokio::test]
    async fn a_step_that_is_given_up_while_the_reader_rests_loses_nothing() {
        // More than the buffers of both ends take.
        let length = 64_000_000;
        let bytes = content(length);
        let mut part = part(&bytes, true, 0, length as u64);
        let (here, mut there) = pair().await;
        let tasks = Tasks::default();
        // There is room for some of it, but not for all. A step that is given up loses nothing.
        while let Ok(done) =
            timeout(Duration::from_millis(50), part.send_piece(&here, &tasks)).await
        {
            assert!(!done.unwrap());
        }
        assert!(part.left > 0);
        let sending = async {
            while !part.send_piece(&here, &tasks).await.unwrap() {}
            drop(here);
        };
        let mut arrived = Vec::new();
        let receiving = there.read_to_end(&mut arrived);
        let ((), read) =
            timeout(PATIENCE, async { tokio::join!(sending, receiving) }).await.unwrap();
        assert_eq!(read.unwrap(), length);
        assert!(arrived == bytes);
    }

    #[tokio::test]
    async fn a_file_that_is_too_short_is_an_error() {
        let bytes = content(10_000);
        let (here, _there) = pair().await;
        let tasks = Tasks::default();
        let mut sent = part(&bytes, true, 0, 10_001);
        let outcome = timeout(PATIENCE, async {
            loop {
                match sent.send_piece(&here, &tasks).await {
                    Ok(done) => assert!(!done),
                    Err(error) => return error.kind(),
                }
            }
        });
        assert_eq!(outcome.await.unwrap(), io::ErrorKind::UnexpectedEof);
        for known in [true, false] {
            let mut copied = part(&bytes, known, 0, 10_001);
            let error = copied.next_piece(&tasks).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_an_error() {
        let bytes = content(20_000_000);
        let mut part = part(&bytes, true, 0, 20_000_000);
        let (here, there) = pair().await;
        drop(there);
        let tasks = Tasks::default();
        let sending = async {
            loop {
                match part.send_piece(&here, &tasks).await {
                    Ok(done) => assert!(!done),
                    Err(error) => return error.kind(),
                }
            }
        };
        let kind = timeout(PATIENCE, sending).await.unwrap();
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(gone.contains(&kind), "{kind:?}");
    }

    #[tokio::test]
    async fn a_stretch_can_be_read_piece_by_piece() {
        let bytes = content(700_000);
        let tasks = Tasks::default();
        for known in [true, false] {
            let mut part = part(&bytes, known, 5, 699_990);
            assert_eq!(part.can_be_sent(), known);
            let mut read = Vec::new();
            while let Some(piece) = part.next_piece(&tasks).await.unwrap() {
                assert!(piece.len() as u64 <= COPIED_BYTES_MAX);
                read.extend_from_slice(&piece);
            }
            assert!(read == bytes[5..699_995]);
        }
    }

    #[tokio::test]
    async fn a_cold_stretch_is_read_first() {
        let bytes = content(3_000_000);
        let mut part = part(&bytes, true, 100, 2_999_900);
        let file = part.file.descriptor().unwrap();
        rustix::fs::fsync(file).unwrap();
        // Where the system follows, the pages are gone; where it does not, they are merely warm.
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
        let (here, mut there) = pair().await;
        let tasks = Tasks::default();
        let sending = async {
            while !part.send_piece(&here, &tasks).await.unwrap() {}
            drop(here);
        };
        let mut arrived = Vec::new();
        let receiving = there.read_to_end(&mut arrived);
        let ((), read) =
            timeout(PATIENCE, async { tokio::join!(sending, receiving) }).await.unwrap();
        assert_eq!(read.unwrap(), 2_999_900);
        assert!(arrived == bytes[100..]);
    }
}
