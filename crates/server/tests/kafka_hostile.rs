//! Does the Kafka listener bound what slow, silent, greedy and broken clients can take? (G40, G50)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;
mod tls_support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kafka::Client;
use punctual_kafka_wire::messages::api_versions::ApiVersionsRequest;
use punctual_kafka_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use punctual_kafka_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use punctual_kafka_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use punctual_kafka_wire::{ErrorCode, frame};
use punctual_server::rules::kafka_rules;
use support::{PATIENCE, Server};
use tls_support::{Authority, Client as Encrypting, Files, Kind};

/// Timeouts short enough for a test, and long enough for whoever is honest on a busy machine.
const SHORT: [(&str, &str); 3] = [
    ("kafka.request_timeout", "1500ms"),
    ("kafka.idle_timeout", "3s"),
    ("kafka.stranger_timeout", "1500ms"),
];

fn still_serves(server: &Server) {
    let answer = Client::connect(server).call(3, &ApiVersionsRequest::default());
    assert_eq!(answer.error_code, 0);
}

/// Sends a byte at a time until the other side has closed.
fn drip(stream: &mut TcpStream) {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
    let mut sink = [0; 64];
    while stream.write_all(&[0]).is_ok() {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            _ => assert!(start.elapsed() < PATIENCE, "still open"),
        }
    }
}

#[test]
fn g40_a_length_that_no_request_has_ends_the_connection() {
    let server = Server::start();
    for length in [-1, i32::MIN, i32::MAX, 100 << 20, (40 << 20) + 1] {
        let mut client = Client::connect(&server);
        client.raw(&length.to_be_bytes()).unwrap();
        assert!(client.is_closed(), "{length}");
    }
    // One of no bytes at all has no head.
    for length in 0..8_usize {
        let mut client = Client::connect(&server);
        client.sized(&vec![0; length]);
        assert!(client.is_closed(), "{length}");
    }
    still_serves(&server);
}

#[test]
fn g40_arrays_and_texts_that_claim_more_than_there_is_end_the_connection() {
    let server = Server::start();
    let claims: [&[u8]; 6] = [
        &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xfe, 0, 0, 0],
        &[0x80, 0, 0, 0, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f],
    ];
    let mut asked = 0;
    for rule in kafka_rules() {
        for version in rule.versions.clone() {
            for claim in claims {
                // The head takes ten bytes, or eleven with tags; with the length it is nineteen and
                // a few.
                let mut bytes = rule.key.to_be_bytes().to_vec();
                bytes.extend_from_slice(&version.to_be_bytes());
                bytes.extend_from_slice(&[0, 0, 0, 1, 255, 255]);
                bytes.extend_from_slice(claim);
                let mut client = Client::connect(&server);
                client.sized(&bytes);
                client.stream.shutdown(std::net::Shutdown::Write).unwrap();
                // Some of it may even mean something; then it is answered.
                let _answered = client.frame().is_ok();
                asked += 1;
            }
        }
    }
    assert!(asked > 300, "{asked}");
    still_serves(&server);
}

#[test]
fn g40_garbage_of_every_kind_is_survived() {
    let server = Server::start();
    // A generator of numbers without a seed from outside, so that a failure can be repeated.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut client = Client::connect(&server);
        let length = usize::try_from(next() % 200).unwrap();
        let mut bytes: Vec<u8> = (0..length).map(|_| next().to_le_bytes()[3]).collect();
        if round % 2 == 0 && bytes.len() >= 4 {
            // The key of an API, and one of its versions.
            let rules = kafka_rules();
            let rule = &rules[usize::try_from(next()).unwrap_or(round) % rules.len()];
            bytes[..2].copy_from_slice(&rule.key.to_be_bytes());
            bytes[2..4].copy_from_slice(&rule.versions.end().to_be_bytes());
        }
        client.sized(&bytes);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _answered = client.frame().is_ok();
    }
    still_serves(&server);
}

#[test]
fn apis_and_versions_that_are_not_offered_end_the_connection() {
    let server = Server::start();
    for (key, version) in [(4_i16, 0_i16), (-1, 0), (999, 0), (3, 99), (3, -1), (0, 0), (1, 3)] {
        let mut client = Client::connect(&server);
        let mut bytes = key.to_be_bytes().to_vec();
        bytes.extend_from_slice(&version.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 1, 255, 255, 0, 0, 0, 0]);
        client.sized(&bytes);
        assert!(client.is_closed(), "{key} {version}");
    }
    still_serves(&server);
}

#[test]
fn g50_silent_and_slow_clients_lose_their_connections() {
    let server = Server::with(&SHORT);
    assert!(Client::connect(&server).is_closed(), "who says nothing");
    let mut begun = Client::connect(&server);
    begun.raw(&[0, 0]).unwrap();
    assert!(begun.is_closed(), "who stops within a length");
    let mut claimed = Client::connect(&server);
    claimed.raw(&(30_i32 << 20).to_be_bytes()).unwrap();
    drip(&mut claimed.stream);
    let mut known = Client::connect(&server);
    known.call(3, &ApiVersionsRequest::default());
    known.raw(&(30_i32 << 20).to_be_bytes()).unwrap();
    drip(&mut known.stream);
    let mut idle = Client::connect(&server);
    idle.call(3, &ApiVersionsRequest::default());
    assert!(idle.is_closed(), "who asks nothing more");
    still_serves(&server);
}

#[test]
fn g50_who_does_not_show_who_it_is_has_little_time_and_little_room() {
    let settings = [&SHORT[..], &[("auth.enabled", "true")]].concat();
    let server = Server::with(&settings);
    let mut large = Client::connect(&server);
    large.raw(&(1_i32 << 20).to_be_bytes()).unwrap();
    assert!(large.is_closed(), "a large request of a stranger");
    let mut busy = Client::connect(&server);
    let start = Instant::now();
    // Whoever only ever asks what is open to everybody stays a stranger.
    while frame_of(&mut busy).is_some() {
        assert!(start.elapsed() < PATIENCE, "a stranger stays for ever");
    }
    still_serves(&server);
}

#[test]
fn who_is_known_may_be_silent_for_longer_than_a_stranger() {
    let server = Server::with(&[("kafka.stranger_timeout", "1s")]);
    let mut client = Client::connect(&server);
    client.call(3, &ApiVersionsRequest::default());
    client.stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let silent = client.stream.read(&mut [0]).unwrap_err();
    let waits = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
    assert!(waits.contains(&silent.kind()), "{silent}");
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    client.call(3, &ApiVersionsRequest::default());
}

fn frame_of(client: &mut Client) -> Option<bytes::Bytes> {
    let request = frame::call(1, 3, None, &ApiVersionsRequest::default()).ok()?;
    client.raw(&request).ok()?;
    client.frame().ok()
}

#[test]
fn g50_a_client_that_does_not_read_loses_its_connection() {
    let server = Server::with(&SHORT);
    server.put("/v1/topics/orders", r#"{"partitions":1}"#);
    let mut greedy = Client::connect(&server);
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "orders".to_owned(),
        configuration_keys: None,
    };
    let all = DescribeConfigsRequest { resources: vec![resource; 200], ..Default::default() };
    let request = frame::call(1, 4, None, &all).unwrap();
    // Each answer has hundreds of kilobytes; the system takes a few of them, and then nobody does.
    let start = Instant::now();
    while greedy.raw(&request).is_ok() {
        assert!(start.elapsed() < PATIENCE, "nobody ends it");
        std::thread::yield_now();
    }
    still_serves(&server);
}

#[test]
fn a_flood_of_requests_is_answered_in_order() {
    const COUNT: i32 = 20_000;
    let server = Server::start();
    let mut client = Client::connect(&server);
    let mut sending = client.stream.try_clone().unwrap();
    let flood = std::thread::Builder::new().spawn(move || {
        for id in 0..COUNT {
            let request = match id % 2 {
                0 => frame::call(id, 3, None, &ApiVersionsRequest::default()),
                _ => frame::call(id, 1, None, &MetadataRequest::default()),
            };
            sending.write_all(&request.unwrap()).unwrap();
        }
    });
    for id in 0..COUNT {
        let answer = client.frame().unwrap();
        assert_eq!(i32::from_be_bytes(answer[..4].try_into().unwrap()), id);
    }
    flood.unwrap().join().unwrap();
}

/// A request of so many bytes that is refused for what it says, not for its size.
fn large(bytes: usize) -> CreateTopicsRequest {
    let config =
        CreatableTopicConfig { name: "retention.ms".to_owned(), value: Some("x".repeat(bytes)) };
    let topic = CreatableTopic {
        name: "large".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![config],
        ..CreatableTopic::default()
    };
    CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() }
}

#[test]
fn g40_more_than_can_be_held_at_once_is_taken_one_after_the_other() {
    // Each of them alone fits, and half of all of them would not.
    let server = Server::with(&[("kafka.held_bytes_max", "16MiB")]);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = Client::connect(&server);
            std::thread::Builder::new()
                .spawn(move || {
                    client.call(3, &ApiVersionsRequest::default());
                    for _ in 0..3 {
                        let answer = client.call(7, &large(10 << 20));
                        let code = ErrorCode::INVALID_CONFIG.code();
                        assert_eq!(answer.topics[0].error_code, code);
                    }
                })
                .unwrap()
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn a_request_may_be_as_large_as_is_configured_and_no_larger() {
    let server = Server::with(&[("kafka.request_bytes_max", "1MiB")]);
    let mut client = Client::connect(&server);
    client.call(3, &ApiVersionsRequest::default());
    let fits = client.call(7, &large((1 << 20) - 1000));
    assert_eq!(fits.topics[0].error_code, ErrorCode::INVALID_CONFIG.code());
    let over = frame::call(1, 7, None, &large(1 << 20)).unwrap();
    let _closed_meanwhile = client.raw(&over).is_err();
    assert!(client.is_closed());
    still_serves(&server);
}

#[test]
fn g50_strangers_give_way_and_the_known_stay() {
    let server = Server::with(&[("kafka.connections_max", "4")]);
    let mut known: Vec<Client> = (0..2).map(|_| Client::connect(&server)).collect();
    for client in &mut known {
        client.call(3, &ApiVersionsRequest::default());
    }
    let mut silent: Vec<Client> = (0..10).map(|_| Client::connect(&server)).collect();
    let closed = silent.iter_mut().take(8).filter_map(|client| client.is_closed().then_some(()));
    assert_eq!(closed.count(), 8);
    for client in &mut known {
        client.call(3, &ApiVersionsRequest::default());
    }
    still_serves(&server);
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("\npunctual_kafka_connections "), "{metrics}");
    assert!(metrics.contains("\npunctual_kafka_connections_gave_way_total "), "{metrics}");
    assert!(!metrics.contains("\npunctual_kafka_connections_gave_way_total 0\n"), "{metrics}");
}

#[test]
fn a_server_that_ends_finishes_what_it_was_asked_and_closes_the_rest() {
    let mut server = Server::start();
    let mut idle = Client::connect(&server);
    idle.call(3, &ApiVersionsRequest::default());
    let mut half = Client::connect(&server);
    half.call(3, &ApiVersionsRequest::default());
    half.raw(&[0, 0, 1, 0, 0]).unwrap();
    server.join().unwrap();
    assert!(idle.is_closed() && half.is_closed());
}

#[test]
fn what_arrived_before_a_client_went_is_carried_out() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let topic = MetadataRequestTopic { name: Some("made".to_owned()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
    client.send(9, &request);
    drop(client);
    let deadline = Instant::now() + PATIENCE;
    while server.get("/v1/topics/made").status != 200 {
        assert!(Instant::now() < deadline, "nobody made it");
    }
}

#[test]
fn tls_and_plain_clients_at_the_wrong_port_are_turned_away() {
    let plain = Server::start();
    let mut client = Client::connect(&plain);
    // How every handshake begins; taken for a length it is a very large one.
    client.raw(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]).unwrap();
    assert!(client.is_closed());
    still_serves(&plain);

    let authority = Authority::new();
    let files = Files::new(&authority.sign(Kind::Server));
    let server = files.serve(&[]);
    let mut client = Client::connect(&server);
    client.send(3, &ApiVersionsRequest::default());
    assert!(client.is_closed(), "this port speaks TLS");
    let stream = Encrypting::trusting(&authority).connect(server.kafka.unwrap());
    let mut client = Client::over(stream.unwrap());
    assert_eq!(client.call(3, &ApiVersionsRequest::default()).error_code, 0);
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    assert_eq!(client.call(9, &all).controller_id, 1);
    assert_eq!(client.call(7, &large(5 << 20)).topics.len(), 1, "a large one too");
}

#[test]
fn where_clients_must_show_a_certificate_nobody_comes_in_without() {
    let authority = Authority::new();
    let files = Files::new(&authority.sign(Kind::Server));
    let path = files.write("ca.pem", &authority.pem).display().to_string();
    let server = files.serve(&[("tls.client_ca_file", &path)]);
    let address = server.kafka.unwrap();
    let own = authority.sign(Kind::Client);
    let stream = Encrypting::trusting(&authority).showing(&own).connect(address);
    let mut client = Client::over(stream.unwrap());
    assert_eq!(client.call(3, &ApiVersionsRequest::default()).error_code, 0);
    let foreign = Authority::new().sign(Kind::Client);
    let strangers =
        [Encrypting::trusting(&authority), Encrypting::trusting(&authority).showing(&foreign)];
    for stranger in strangers {
        // What the server thinks of it may show only when it is asked.
        let Ok(stream) = stranger.connect(address) else { continue };
        let mut client = Client::over(stream);
        let request = frame::call(1, 3, None, &ApiVersionsRequest::default()).unwrap();
        assert!(client.raw(&request).is_err() || client.frame().is_err());
    }
}

#[test]
fn an_address_that_is_taken_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("data").display().to_string();
    let mut file = punctual_server::config::ConfigFile::default();
    let settings =
        [("http.listen", "127.0.0.1:0"), ("kafka.listen", &address), ("store.data", &data)];
    for (name, value) in settings {
        let source = punctual_server::config::Source::Flag("test");
        file.set(name, value.to_owned(), source).unwrap();
    }
    let config = punctual_server::config::Config::try_from(file).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (ready, _started) = tokio::sync::oneshot::channel();
    let served = punctual_server::app::serve(config, ready, std::future::pending());
    let error = runtime.block_on(served).unwrap_err().to_string();
    assert!(error.contains(&address) && error.contains("--kafka off"), "{error}");
}
