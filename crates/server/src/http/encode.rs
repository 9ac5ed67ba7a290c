//! Makes answers smaller for those who ask for it.
//!
//! Small answers are left alone, and so is everything that is not text. An answer that is still being
//! written is encoded piece by piece, and each piece can be read as soon as it is there. Large ones
//! are encoded where nobody else waits.

use std::io::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use tokio::sync::mpsc;

use crate::http::body::hold;
use crate::http::coding::Coding;
use crate::http::etag;
use crate::http::export::NDJSON;
use crate::http::reply::{Body, Cut, Piece, Pieces, Reply, counted};
use crate::http::shared::Shared;
use crate::tasks::Tasks;

/// Smaller answers are sent as they are.
const ENCODED_BYTES_MIN: u64 = 1 << 10;
/// Larger ones are encoded on a thread that may be kept busy.
const INLINE_BYTES_MAX: usize = 16 << 10;
const GZIP_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 3;
/// A stream has a state of its own, which is to be small.
const ZSTD_STREAM_LEVEL: i32 = 1;
/// What the state of a stream takes, about.
const STREAM_BYTES: usize = 1 << 20;

/// The answer in the coding that was asked for, where that pays.
pub(crate) async fn encoded(
    shared: &Arc<Shared>,
    mut reply: Reply,
    coding: Option<Coding>,
) -> Reply {
    if !is_encodable(&reply) {
        return reply;
    }
    reply.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(coding) = coding else { return reply };
    let (mut parts, body) = reply.into_parts();
    let body = match body {
        Body::Whole(bytes) => whole(shared, bytes, coding).await,
        Body::Written(pieces) => stream(shared, pieces, coding),
        // Nothing that is text is made so.
        Body::Flowing(body) => Err(Body::Flowing(body)),
    };
    let body = match body {
        Ok(body) => {
            mark(&mut parts.headers, coding);
            body
        }
        Err(as_it_was) => as_it_was,
    };
    Reply::from_parts(parts, body)
}

/// The same content in another coding is another representation, with another tag.
fn mark(headers: &mut HeaderMap, coding: Coding) {
    headers.insert(CONTENT_ENCODING, coding.value());
    if let Some(tag) = headers.get(ETAG).and_then(|tag| etag::coded(tag, coding)) {
        headers.insert(ETAG, tag);
    }
}

fn is_encodable(reply: &Reply) -> bool {
    let large = match reply.body().size_hint().exact() {
        Some(bytes) => bytes >= ENCODED_BYTES_MIN,
        None => true,
    };
    let status = reply.status();
    if !large || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return false;
    }
    let headers = reply.headers();
    let media_type = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    let is_text = match essence {
        b"application/json" | b"application/problem+json" | b"application/javascript" => true,
        // Events are few and small, and whoever reads them keeps reading for hours.
        b"text/event-stream" => false,
        essence => essence == NDJSON.as_bytes() || essence.starts_with(b"text/"),
    };
    is_text && !headers.contains_key(CONTENT_ENCODING)
}

/// All of it at once; as it was if that makes it no smaller, or nothing is left to hold it.
async fn whole(shared: &Shared, plain: Full<Bytes>, coding: Coding) -> Result<Body, Body> {
    let plain = match plain.collect().await {
        Ok(plain) => plain.to_bytes(),
        Err(never) => match never {},
    };
    let input = plain.clone();
    let pack = move || pack(&input, coding);
    let packed = if plain.len() <= INLINE_BYTES_MAX {
        pack()
    } else {
        shared.tasks.blocking(pack).await.unwrap_or_else(|broken| Err(io::Error::other(broken)))
    };
    let packed = packed.ok().filter(|packed| packed.len() < plain.len());
    match packed.map(|packed| counted(shared, packed)) {
        Some(Ok(packed)) => Ok(Body::Whole(Full::new(packed))),
        None | Some(Err(_)) => Err(Body::Whole(Full::new(plain))),
    }
}

fn pack(plain: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Gzip => {
            let room = Vec::with_capacity(plain.len() / 4);
            let mut encoder = GzEncoder::new(room, Compression::new(GZIP_LEVEL));
            encoder.write_all(plain)?;
            encoder.finish()
        }
        Coding::Zstd => zstd::bulk::compress(plain, ZSTD_LEVEL),
    }
}

/// Piece by piece, in a task of its own; as it was if there is no room for another one's state.
fn stream(shared: &Arc<Shared>, mut plain: Pieces, coding: Coding) -> Result<Body, Body> {
    let Ok(held) = hold(shared, STREAM_BYTES) else { return Err(Body::Written(plain)) };
    let Ok(mut encoder) = StreamEncoder::new(coding) else { return Err(Body::Written(plain)) };
    let (packed, source) = mpsc::channel(1);
    let tasks = shared.tasks.clone();
    shared.tasks.spawn(async move {
        let _held = held;
        loop {
            let piece = tokio::select! {
                piece = plain.source.recv() => piece,
                // Nobody reads it any more.
                () = packed.closed() => return,
            };
            let (plain, is_last) = match piece {
                Some(Ok(piece)) => (Some(piece.hand_over()), false),
                Some(Err(Cut)) => {
                    let _unread = packed.send(Err(Cut)).await.is_err();
                    return;
                }
                None => (None, true),
            };
            let piece = match encoder.next(&tasks, plain).await {
                Ok((rest, piece)) => {
                    encoder = rest;
                    Ok(Piece::from(piece))
                }
                Err(_io) => {
                    let _unread = packed.send(Err(Cut)).await.is_err();
                    return;
                }
            };
            if packed.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Ok(Body::Written(Pieces::new(source)))
}

/// An answer on its way out, made smaller.
enum StreamEncoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl StreamEncoder {
    fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => {
                let encoder = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
                Self::Gzip(Box::new(encoder))
            }
            Coding::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_STREAM_LEVEL)?;
                Self::Zstd(Box::new(encoder))
            }
        })
    }

    /// The next piece, or the end, encoded.
    async fn next(self, tasks: &Tasks, plain: Option<Bytes>) -> io::Result<(Self, Vec<u8>)> {
        let is_large = plain.as_ref().is_some_and(|plain| plain.len() > INLINE_BYTES_MAX);
        let encode = move || self.encode(plain.as_deref());
        if is_large { tasks.blocking(encode).await.map_err(io::Error::other)? } else { encode() }
    }

    fn encode(mut self, plain: Option<&[u8]>) -> io::Result<(Self, Vec<u8>)> {
        let Some(plain) = plain else {
            match &mut self {
                Self::Gzip(encoder) => encoder.try_finish()?,
                Self::Zstd(encoder) => encoder.do_finish()?,
            }
            let rest = self.take();
            return Ok((self, rest));
        };
        match &mut self {
            Self::Gzip(encoder) => {
                encoder.write_all(plain)?;
                encoder.flush()?;
            }
            Self::Zstd(encoder) => {
                encoder.write_all(plain)?;
                encoder.flush()?;
            }
        }
        let packed = self.take();
        Ok((self, packed))
    }

    fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Self::Zstd(encoder) => std::mem::take(encoder.get_mut()),
        }
    }
}
