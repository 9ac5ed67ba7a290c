//! Streaming sends over gRPC: batches of several sizes, many under way on every stream.
//!
//! The client shares the machine's cores with the server. It sends frames that were made before, and
//! of every answer it looks at the sequence and at whether the batch was accepted; that all of them
//! arrived is asked in the end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::future::try_join_all;
use h2::client::Builder;
use h2::{RecvStream, SendStream};
use prost::Message as _;
use punctual_model::{Clock as _, SystemClock};
use punctual_proto::v1;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::args::{Common, GrpcOptions};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table};
use crate::rig::Place;
use crate::server::{ANSWER_MAX, Server};

/// Different frames each stream sends in turn.
const FRAMES: usize = 64;
/// How much may arrive before the client looks at it.
const WINDOW_BYTES: u32 = 4 << 20;

pub(crate) fn run(common: &Common, options: &GrpcOptions) -> Result<()> {
    let place = Place::fresh(common, 8 << 30)?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let measured = all_sizes(common, options, &server, place.path());
    let stopped = server.stop();
    measured?.finish(common)?;
    stopped?;
    place.clear()
}

fn all_sizes(
    common: &Common,
    options: &GrpcOptions,
    server: &Server,
    dir: &Path,
) -> Result<Report> {
    let settings = json!({
        "streams": options.streams, "client_threads": options.threads,
        "under_way": options.under_way, "seconds_each": options.secs, "body": options.body,
    });
    let mut report = Report::new("grpc", common, settings);
    let columns = ["batches/s", "messages/s", "server s/M", "client s/M"];
    let mut rates = Table::new("batch of", &columns);
    let mut latencies = Table::of_latency("latency");
    let mut chart = Vec::new();
    let mut all = 0;
    for batch in &options.batches {
        let name = batch.to_string();
        let (server_cpu, client_cpu) = (server.cpu()?, measure::cpu());
        let (sent, took) = drive(server.address, options, *batch)?;
        let messages = sent.batches * *batch as u64;
        let cost = Cost { messages, took, cpu: server.cpu()?.saturating_sub(server_cpu) };
        let client = Cost { cpu: measure::cpu().saturating_sub(client_cpu), ..cost };
        let batches = sent.batches as f64 / took.as_secs_f64();
        let (server_million, client_million) = (cost.cpu_per_million(), client.cpu_per_million());
        rates.row(&name, vec![batches, cost.rate(), server_million, client_million]);
        report.figure(&format!("messages per second in batches of {name}"), cost.rate());
        latencies.row(&name, sent.latency.millis());
        chart.push((name, sent.latency));
        all += messages;
    }
    let chart: Vec<_> = chart.iter().map(|(name, latency)| (name.as_str(), latency)).collect();
    report.latency_chart("batch latency", &chart);
    report.table(rates);
    report.table(latencies);
    report.figure("messages", all as f64);
    report.figure("messages pending in the end", pending(server.address)? as f64);
    // Of the server, not of this program.
    report.memory(memory_of(server.pid()));
    report.disk(dir, all);
    Ok(report)
}

/// What the streams did.
struct Sent {
    batches: u64,
    latency: Latency,
}

/// Sends for as long as asked over all streams.
fn drive(address: SocketAddr, options: &GrpcOptions, batch: usize) -> Result<(Sent, Duration)> {
    let clock = SystemClock::new();
    let threads = options.threads.min(options.streams).max(1);
    let share =
        |thread: usize| options.streams / threads + usize::from(thread < options.streams % threads);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for thread in 0..threads {
            let (clock, count) = (&clock, share(thread));
            let builder = std::thread::Builder::new().name(format!("bench-grpc-{thread}"));
            let work = move || {
                let frames = frames(options, batch, thread as u64);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let streams = (0..count).map(|_| stream(address, &frames, options, clock));
                runtime.block_on(try_join_all(streams))
            };
            running.push(builder.spawn_scoped(scope, work)?);
        }
        let mut all = Sent { batches: 0, latency: Latency::new() };
        for thread in running {
            for sent in thread.join().ok().context("a client thread ended by a panic")?? {
                all.batches += sent.batches;
                all.latency.add(&sent.latency);
            }
        }
        Ok((all, clock.read().monotonic))
    })
}

/// Frames ready to be sent, with random bodies and due times over 40 days.
fn frames(options: &GrpcOptions, batch: usize, seed: u64) -> Vec<Bytes> {
    let mut random = Random::new(seed + 1);
    let mut message = || {
        let delay_ms = 600_000 + random.below(39 * 86_400_000);
        let delay = prost_types::Duration {
            seconds: i64::try_from(delay_ms / 1000).unwrap_or_default(),
            nanos: i32::try_from(delay_ms % 1000).unwrap_or_default() * 1_000_000,
        };
        v1::NewMessage {
            body: random.bytes(options.body).into(),
            when: Some(v1::new_message::When::Delay(delay)),
            ..v1::NewMessage::default()
        }
    };
    let mut one = |sequence| {
        framed(&v1::SendStreamRequest {
            sequence,
            topic: "bench".to_owned(),
            messages: (0..batch).map(|_| message()).collect(),
        })
    };
    (0..FRAMES as u64).map(&mut one).collect()
}

fn framed(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("frames are far smaller"));
    message.encode(&mut frame).expect("there is room for it");
    frame.freeze()
}

fn request(address: SocketAddr, method: &str) -> Result<http::Request<()>> {
    let request = http::Request::post(format!("http://{address}/punctual.v1.{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    Ok(request.body(())?)
}

/// One stream on a connection of its own.
async fn stream(
    address: SocketAddr,
    frames: &[Bytes],
    options: &GrpcOptions,
    clock: &SystemClock,
) -> Result<Sent> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (client, connection) = builder.handshake::<_, Bytes>(tcp).await?;
    let work = async move {
        let mut client = client.ready().await?;
        let (response, to) =
            client.send_request(request(address, "MessageService/SendStream")?, false)?;
        let under_way = Semaphore::new(options.under_way);
        let times = parking_lot::Mutex::new(VecDeque::new());
        let sending = async {
            let end = Duration::from_secs(options.secs);
            send(to, frames, (&under_way, &times), clock, end).await
        };
        let receiving = async {
            let response = response.await?;
            ensure!(response.status() == 200, "the server answered {}", response.status());
            receive(response.into_body(), (&under_way, &times), clock).await
        };
        let ((), sent) = tokio::try_join!(sending, receiving)?;
        Ok(sent)
    };
    tokio::select! {
        sent = work => sent,
        ended = connection => {
            ended?;
            bail!("the server closed the connection")
        }
    }
}

type Times = parking_lot::Mutex<VecDeque<Duration>>;

/// Sends frame after frame while there is room for more under way.
async fn send(
    mut to: SendStream<Bytes>,
    frames: &[Bytes],
    (under_way, times): (&Semaphore, &Times),
    clock: &SystemClock,
    end: Duration,
) -> Result<()> {
    for frame in frames.iter().cycle() {
        under_way.acquire().await?.forget();
        let now = clock.read().monotonic;
        if now >= end {
            break;
        }
        times.lock().push_back(now);
        let mut rest = frame.clone();
        while !rest.is_empty() {
            to.reserve_capacity(rest.len());
            let room = poll_fn(|cx| to.poll_capacity(cx)).await.context("the stream ended")??;
            to.send_data(rest.split_to(room.min(rest.len())), false)?;
        }
    }
    to.send_data(Bytes::new(), true)?;
    Ok(())
}

/// Takes answers until the server ends the stream.
async fn receive(
    mut body: RecvStream,
    (under_way, times): (&Semaphore, &Times),
    clock: &SystemClock,
) -> Result<Sent> {
    let mut sent = Sent { batches: 0, latency: Latency::new() };
    let mut arrived = BytesMut::new();
    while let Some(piece) = tokio::time::timeout(ANSWER_MAX, body.data()).await? {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        arrived.extend_from_slice(&piece);
        while let Some(answer) = next_frame(&mut arrived) {
            ensure!(is_accepted(&answer)?, "a batch was refused: {:?}", refusal(answer));
            let since = times.lock().pop_front().context("an answer without a batch")?;
            sent.latency.note(clock.read().monotonic.saturating_sub(since));
            sent.batches += 1;
            under_way.add_permits(1);
        }
    }
    let trailers = body.trailers().await?.context("the stream has no end")?;
    let status = trailers.get("grpc-status").context("the stream has no status")?;
    ensure!(status == "0", "the stream ended with {trailers:?}");
    ensure!(times.lock().is_empty(), "not every batch was answered");
    Ok(sent)
}

fn next_frame(arrived: &mut BytesMut) -> Option<BytesMut> {
    let length = u32::from_be_bytes(arrived.get(1..5)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    if arrived.len() < 5 + length {
        return None;
    }
    arrived.advance(5);
    Some(arrived.split_to(length))
}

/// Whether the answer is one to a batch that was accepted: behind the sequence comes `sent`.
fn is_accepted(answer: &[u8]) -> Result<bool> {
    let mut rest = answer;
    let mut key = prost::encoding::decode_varint(&mut rest)?;
    if key == 1 << 3 {
        prost::encoding::decode_varint(&mut rest)?;
        key = prost::encoding::decode_varint(&mut rest)?;
    }
    Ok(key == 2 << 3 | 2)
}

fn refusal(answer: BytesMut) -> Option<v1::SendStreamResponse> {
    v1::SendStreamResponse::decode(answer.freeze()).ok()
}

/// How many messages the server says are pending.
fn pending(address: SocketAddr) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tcp = TcpStream::connect(address).await?;
        let (client, connection) = h2::client::handshake(tcp).await?;
        let work = async move {
            let mut client = client.ready().await?;
            let (response, mut to) =
                client.send_request(request(address, "AdminService/GetTopic")?, false)?;
            to.send_data(framed(&v1::TopicName { topic: "bench".to_owned() }), true)?;
            let mut body = response.await?.into_body();
            let mut arrived = BytesMut::new();
            while let Some(piece) = body.data().await {
                arrived.extend_from_slice(&piece?);
            }
            let answer = next_frame(&mut arrived).context("the topic is not known")?;
            let topic = v1::Topic::decode(answer.freeze())?;
            topic.pending.context("the topic does not tell what is pending")
        };
        tokio::select! {
            count = work => count,
            ended = connection => {
                ended?;
                bail!("the server closed the connection")
            }
        }
    })
}
