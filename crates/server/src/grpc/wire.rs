//! gRPC on the wire: messages come in and go out in frames, and trailers tell how a call ended.
//!
//! A frame is taken in piece by piece, so that its length is a promise to be kept and never memory
//! set aside. From its first byte on it counts as held, and has to be complete within the time that
//! a body has. Between two frames a stream may rest.

use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use prost::Message;
use punctual_api::{Code, Problem};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use crate::http::body::hold;
use crate::http::problem::of_broken_off;
use crate::http::shared::Shared;

/// Bytes in front of every message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;
/// Set aside for a frame before its bytes arrive, at most.
const FIRST_BYTES_MAX: usize = 64 << 10;
/// How much is taken out of a compressed message at once.
const INFLATE_STEP_BYTES: usize = 64 << 10;
/// Largest window of a compressed message, as a power of two.
const WINDOW_LOG_MAX: u32 = 23;

/// What can be read from the bytes of a request.
pub(crate) trait Ask: Sized {
    /// Reads it; hostile bytes are refused.
    fn read(bytes: &Bytes) -> Result<Self, Problem>;
}

impl<T: Message + Default> Ask for T {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        T::decode(bytes.clone()).map_err(|error| malformed(error.to_string()))
    }
}

/// What can be written as an answer.
pub(crate) trait Answer {
    /// Appends it.
    fn write(&self, to: &mut BytesMut);

    /// It is on its way and will not be refused any more.
    fn sent(self)
    where
        Self: Sized,
    {
    }
}

impl<T: Message> Answer for T {
    fn write(&self, to: &mut BytesMut) {
        to.reserve(self.encoded_len());
        self.encode(to).expect("there is room for it");
    }
}

/// The bytes are no message of that kind.
pub(crate) fn malformed(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}

/// An answer as one frame.
pub(crate) fn framed(answer: &impl Answer) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + 256);
    frame.put_bytes(0, HEAD_BYTES);
    answer.write(&mut frame);
    let length = u32::try_from(frame.len() - HEAD_BYTES).expect("answers are far smaller");
    if let Some(place) = frame.get_mut(1..HEAD_BYTES) {
        place.copy_from_slice(&length.to_be_bytes());
    }
    frame.freeze()
}

/// A message that has arrived. Its bytes count as held until it is dropped.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    pub(crate) permits: Vec<OwnedSemaphorePermit>,
}

/// How messages of a call are compressed, where they say that they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// How messages may be compressed.
pub(crate) const ENCODINGS: &str = "identity,gzip,zstd";

/// The messages of a call, as they arrive.
pub(crate) struct Frames {
    body: Incoming,
    shared: Arc<Shared>,
    bytes_max: usize,
    encoding: Encoding,
    /// Whether the time runs between frames too.
    timed: bool,
    /// What has arrived and was not looked at.
    rest: Bytes,
    head: [u8; HEAD_BYTES],
    head_length: usize,
    begun: Option<Begun>,
    /// A compressed message that is being unpacked.
    unpacking: Option<Unpacking>,
    /// When more has to have arrived, and all of it.
    idle_until: Option<Instant>,
    last: Option<Instant>,
}

type Unpacking = Pin<Box<dyn Future<Output = Result<Frame, Problem>> + Send>>;

/// A frame of which not everything has arrived.
struct Begun {
    length: usize,
    bytes: BytesMut,
    permit: Option<OwnedSemaphorePermit>,
}

impl Frames {
    /// The messages of a call, none larger than that.
    pub(crate) fn new(
        shared: Arc<Shared>,
        body: Incoming,
        headers: &HeaderMap,
        bytes_max: usize,
    ) -> Result<Self, Problem> {
        let encoding = match headers.get("grpc-encoding").map(http::HeaderValue::as_bytes) {
            None | Some(b"identity") => Encoding::Identity,
            Some(b"gzip") => Encoding::Gzip,
            Some(b"zstd") => Encoding::Zstd,
            Some(_) => {
                let detail = format!("messages may be compressed as {ENCODINGS}");
                return Err(Problem::new(Code::RouteNotFound, detail));
            }
        };
        Ok(Self {
            body,
            shared,
            bytes_max,
            encoding,
            timed: false,
            rest: Bytes::new(),
            head: [0; HEAD_BYTES],
            head_length: 0,
            begun: None,
            unpacking: None,
            idle_until: None,
            last: None,
        })
    }

    /// The one message of a call that has one. More may follow only if there is nothing in it: some
    /// clients end so.
    pub(crate) async fn only(mut self) -> Result<Frame, Problem> {
        self.timed = true;
        let first = self.next().await?.ok_or_else(|| malformed("the call has no message"))?;
        while let Some(more) = self.next().await? {
            if !more.bytes.is_empty() {
                return Err(malformed("the call has more than one message"));
            }
        }
        Ok(first)
    }

    /// The next message; `None` after the last. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, Problem> {
        loop {
            if let Some(unpacking) = &mut self.unpacking {
                let frame = unpacking.as_mut().await;
                self.unpacking = None;
                return frame.map(Some);
            }
            if self.begin().await?
                && let Some(frame) = self.fill()
            {
                (self.idle_until, self.last) = (None, None);
                match self.opened(frame)? {
                    Some(frame) => return Ok(Some(frame)),
                    None => continue,
                }
            }
            if !self.rest.is_empty() {
                continue;
            }
            match self.piece().await? {
                Some(piece) => self.rest = piece,
                None if self.head_length == 0 => return Ok(None),
                None => return Err(malformed("the stream broke off within a message")),
            }
        }
    }

    /// Whether the head of a frame has arrived. It waits until as much may be held.
    async fn begin(&mut self) -> Result<bool, Problem> {
        if self.begun.is_some() {
            return Ok(true);
        }
        let missing = (HEAD_BYTES - self.head_length).min(self.rest.len());
        let place = self.head.get_mut(self.head_length..self.head_length + missing);
        place.expect("no more than is missing").copy_from_slice(&self.rest.split_to(missing));
        self.head_length += missing;
        if self.head_length < HEAD_BYTES {
            return Ok(false);
        }
        let [_, length @ ..] = self.head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            let detail = format!("it is larger than {} bytes", self.bytes_max);
            return Err(Problem::new(Code::RequestTooLarge, detail));
        }
        let permit = held(&self.shared, length).await?;
        let bytes = BytesMut::new();
        self.begun = Some(Begun { length, bytes, permit });
        Ok(true)
    }

    /// Moves what has arrived into the frame; the frame, once it is complete.
    fn fill(&mut self) -> Option<Frame> {
        let begun = self.begun.as_mut()?;
        let missing = begun.length - begun.bytes.len();
        let bytes = if begun.bytes.is_empty() && self.rest.len() >= missing {
            // All of it came in one piece, which is then used as it is.
            self.rest.split_to(missing)
        } else {
            if begun.bytes.is_empty() {
                begun.bytes.reserve(begun.length.min(FIRST_BYTES_MAX));
            }
            let piece = self.rest.split_to(missing.min(self.rest.len()));
            begun.bytes.extend_from_slice(&piece);
            if begun.bytes.len() < begun.length {
                return None;
            }
            std::mem::take(&mut begun.bytes).freeze()
        };
        let begun = self.begun.take()?;
        Some(Frame { bytes, permits: begun.permit.into_iter().collect() })
    }

    /// The next piece of the body; `None` at its end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let within = self.timed || self.head_length > 0;
            let frame = if within {
                let now = Instant::now();
                let last =
                    *self.last.get_or_insert(now + self.shared.live().config.http.body_timeout);
                let idle = now + self.shared.live().config.http.body_idle_timeout;
                let deadline = last.min(*self.idle_until.get_or_insert(idle));
                let frame = timeout_at(deadline, self.body.frame()).await;
                frame.map_err(|_elapsed| Problem::from(Code::RequestTimeout))?
            } else {
                self.body.frame().await
            };
            self.idle_until = None;
            match frame {
                None => return Ok(None),
                Some(Err(_broken)) => return Err(malformed("the request broke off")),
                // Trailers say nothing here.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    /// The message of a frame; `None` if it is compressed and has to be unpacked first.
    fn opened(&mut self, mut frame: Frame) -> Result<Option<Frame>, Problem> {
        self.head_length = 0;
        let [flag, ..] = self.head;
        match (flag, self.encoding) {
            (0, _) => return Ok(Some(frame)),
            (1, Encoding::Gzip | Encoding::Zstd) => {}
            (1, Encoding::Identity) => {
                return Err(malformed("nothing says how the message is compressed"));
            }
            _ => return Err(malformed("this is no frame of gRPC")),
        }
        let (shared, encoding, most) = (Arc::clone(&self.shared), self.encoding, self.bytes_max);
        let work = move || {
            let (bytes, permits) = inflate(&shared, encoding, &frame.bytes, most)?;
            frame.bytes = bytes;
            frame.permits.extend(permits);
            Ok(frame)
        };
        let tasks = self.shared.tasks.clone();
        let work = async move { tasks.blocking(work).await.map_err(of_broken_off)? };
        self.unpacking = Some(Box::pin(work));
        Ok(None)
    }
}

/// Waits until so many bytes may be held. Whoever waits here holds nothing that others need: what it
/// has under way ends by itself.
async fn held(shared: &Shared, length: usize) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let busy = || Problem::new(Code::TooBusy, "requests hold as much memory as they may");
    let permits = u32::try_from(length).map_err(|_huge| busy())?;
    let (most, patience) = {
        let http = &shared.live().config.http;
        (http.held_bytes_max, http.body_timeout)
    };
    if length > most {
        return Err(busy());
    }
    if permits == 0 {
        return Ok(None);
    }
    let held = Arc::clone(&shared.held).acquire_many_owned(permits);
    match timeout(patience, held).await {
        Ok(Ok(permit)) => Ok(Some(permit)),
        Ok(Err(_)) | Err(_) => Err(busy()),
    }
}

/// Takes a compressed message out, no more of it than may be and than may be held.
fn inflate(
    shared: &Shared,
    encoding: Encoding,
    bytes: &Bytes,
    bytes_max: usize,
) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Problem> {
    let broken = |error: io::Error| malformed(format!("the message cannot be unpacked: {error}"));
    let mut source: Box<dyn Read> = match encoding {
        Encoding::Identity => return Ok((bytes.clone(), Vec::new())),
        Encoding::Gzip => Box::new(flate2::bufread::GzDecoder::new(bytes.as_ref())),
        Encoding::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(bytes.as_ref()).map_err(broken)?;
            decoder.window_log_max(WINDOW_LOG_MAX).map_err(broken)?;
            Box::new(decoder)
        }
    };
    let mut out = Vec::new();
    let mut permits: Vec<OwnedSemaphorePermit> = Vec::new();
    loop {
        let before = out.len();
        let step = u64::try_from(INFLATE_STEP_BYTES).expect("a small number");
        if let Some(more) = hold(shared, INFLATE_STEP_BYTES)? {
            match permits.first_mut() {
                Some(first) => first.merge(more),
                None => permits.push(more),
            }
        }
        source.by_ref().take(step).read_to_end(&mut out).map_err(broken)?;
        if out.len() > bytes_max {
            let detail = format!("unpacked it is larger than {bytes_max} bytes");
            return Err(Problem::new(Code::RequestTooLarge, detail));
        }
        if out.len() == before {
            return Ok((out.into(), permits));
        }
    }
}

/// What is left of a buffer as text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_other| malformed("a text is not UTF-8"))
}

/// The fields of a message, one after the other, without copies.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// A field of a message.
pub(crate) enum Field<'a> {
    /// A number, a truth or a word.
    Varint(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// Something that no field of ours is.
    Other,
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The number and the value of the next field; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Problem> {
        use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
        if self.rest.is_empty() {
            return Ok(None);
        }
        let broken = |error: prost::DecodeError| malformed(error.to_string());
        let (number, kind) = decode_key(&mut self.rest).map_err(broken)?;
        let value = match kind {
            WireType::Varint => Field::Varint(decode_varint(&mut self.rest).map_err(broken)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.rest).map_err(broken)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let whole = self.rest.split_at_checked(length);
                let (bytes, rest) = whole.ok_or_else(|| malformed("a field is cut off"))?;
                self.rest = rest;
                Field::Bytes(bytes)
            }
            other => {
                skip_field(other, number, &mut self.rest, DecodeContext::default())
                    .map_err(broken)?;
                Field::Other
            }
        };
        Ok(Some((number, value)))
    }
}
