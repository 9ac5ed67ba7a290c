//! Answers on their way out.
//!
//! A client that does not read on in its time loses its connection; what it has not read waits in
//! the socket and in the one answer that is under way, nowhere else.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::kafka::fetch::FilePart;
use crate::kafka::reply::Part;
use crate::net::WriteHalf;
use crate::tasks::Tasks;

/// Where answers go.
pub(crate) struct Outgoing {
    stream: WriteHalf,
    /// Longest time without progress.
    patience: Duration,
    tasks: Tasks,
}

impl Outgoing {
    pub(crate) const fn new(stream: WriteHalf, patience: Duration, tasks: Tasks) -> Self {
        Self { stream, patience, tasks }
    }

    /// Sends all of these.
    pub(crate) async fn send(&mut self, parts: &[Part]) -> io::Result<()> {
        for part in parts {
            match part {
                Part::Bytes(bytes) => self.bytes(bytes).await?,
                Part::File { file, position, length } => {
                    self.file(FilePart::new(Arc::clone(file), *position, *length)).await?;
                }
            }
        }
        timely(self.patience, self.stream.flush()).await
    }

    /// Nothing more comes.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        timely(self.patience, self.stream.shutdown()).await
    }

    async fn bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match timely(self.patience, self.stream.write(bytes)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    async fn file(&mut self, mut part: FilePart) -> io::Result<()> {
        if let WriteHalf::Plain(stream) = &self.stream
            && part.can_be_sent()
        {
            let (stream, tasks) = (stream.as_ref(), &self.tasks);
            while !timely(self.patience, part.send_piece(stream, tasks)).await? {}
            return Ok(());
        }
        while let Some(piece) = part.next_piece(&self.tasks).await? {
            self.bytes(&piece).await?;
        }
        Ok(())
    }
}

async fn timely<T>(patience: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(patience, work).await.map_err(|_elapsed| io::ErrorKind::TimedOut)?
}
