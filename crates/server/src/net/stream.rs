//! What the bytes of a connection go over: as they are, or encrypted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::server::TlsStream;

/// What the bytes go over. The one without encryption is the one that must be fast.
#[derive(Debug)]
pub(crate) enum Stream {
    /// As they are.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Where bytes come in. The other half is a [`WriteHalf`], and both may be used at one time.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    /// As they are.
    Plain(OwnedReadHalf),
    /// Encrypted.
    Tls(tokio::io::ReadHalf<TlsStream<TcpStream>>),
}

/// Where bytes go out.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    /// As they are.
    Plain(OwnedWriteHalf),
    /// Encrypted.
    Tls(tokio::io::WriteHalf<TlsStream<TcpStream>>),
}

impl Stream {
    /// Both ways of the connection.
    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Plain(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            Self::Tls(stream) => {
                let (read, write) = tokio::io::split(*stream);
                (ReadHalf::Tls(read), WriteHalf::Tls(write))
            }
        }
    }
}

impl ReadHalf {
    /// Reads what is there, at most as much as the buffer has room for; 0 at the end.
    pub(crate) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read_buf(buffer).await,
            Self::Tls(stream) => stream.read_buf(buffer).await,
        }
    }
}

impl WriteHalf {
    /// Writes some of these bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes).await,
            Self::Tls(stream) => stream.write(bytes).await,
        }
    }

    /// Sends on what encryption may hold back.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush().await,
            Self::Tls(stream) => stream.flush().await,
        }
    }

    /// Says that nothing more comes.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }
}

/// The same for every kind of stream.
macro_rules! over {
    ($stream:expr, $inner:ident => $what:expr) => {
        match $stream.get_mut() {
            Stream::Plain(inner) => {
                let $inner = Pin::new(inner);
                $what
            }
            Stream::Tls(inner) => {
                let $inner = Pin::new(&mut **inner);
                $what
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        over!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        over!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        over!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        // Both kinds are.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        over!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        over!(self, stream => stream.poll_shutdown(cx))
    }
}
