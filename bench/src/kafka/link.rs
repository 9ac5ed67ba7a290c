//! A connection to a Kafka listener that costs as little as can be.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result, ensure};

use crate::server::ANSWER_MAX;

/// Taken from a connection at once.
const PIECE_BYTES: usize = 256 << 10;

/// A connection with frames under way in both directions.
pub(crate) struct Link {
    stream: TcpStream,
    piece: Vec<u8>,
}

impl Link {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self { stream, piece: vec![0; PIECE_BYTES] })
    }

    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(frame)?)
    }

    /// The next `count` bytes, of which there are few.
    pub(crate) fn take(&mut self, count: usize) -> Result<&[u8]> {
        let bytes = self.piece.get_mut(..count).context("an answer is larger than it can be")?;
        self.stream.read_exact(bytes).context("no answer for half a minute")?;
        Ok(bytes)
    }

    /// Takes and forgets what has arrived, at most `most`; how much that was.
    pub(crate) fn drain_some(&mut self, most: usize) -> Result<usize> {
        let room = most.min(self.piece.len());
        let count = self.stream.read(&mut self.piece[..room])?;
        ensure!(count > 0, "the other side closed a connection");
        Ok(count)
    }

    /// Takes and forgets the next `count` bytes.
    pub(crate) fn drain(&mut self, mut count: usize) -> Result<()> {
        while count > 0 {
            count -= self.drain_some(count)?;
        }
        Ok(())
    }
}

/// A number out of an answer.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let number = bytes.get(at..at + N).context("a short answer")?;
    Ok(number.try_into()?)
}
