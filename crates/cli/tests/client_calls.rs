//! Does every call of the Rust client do what it says, against the real server?

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step may stop a test, and due times are of the wall clock"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod command_support;
mod process_support;

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use command_support::Server;
use process_support::PATIENCE;
use punctual_client::{
    Cancel, Change, ChangeError, Client, DelayLevel, Filter, Message, Repeat, Retry, SendError,
    Settled, State,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

const HOUR: Duration = Duration::from_secs(3600);

async fn client(server: &Server) -> Client {
    Client::connect(&server.url).await.unwrap()
}

#[tokio::test]
async fn messages_are_sent_for_any_time_and_known_by_both_ids() {
    let server = Server::start();
    let producer = client(&server).await.producer();
    let at = SystemTime::now() + HOUR;
    let by_time = producer.send_at("t", Message::new("x").id("mine"), at).await.unwrap();
    let difference = by_time.due.duration_since(at).unwrap_or_else(|early| early.duration());
    assert!(difference < Duration::from_millis(2), "{difference:?}");
    let again = producer.send_at("t", Message::new("x").id("mine"), at).await.unwrap();
    assert_eq!((again.id.as_str(), again.duplicate), (by_time.id.as_str(), true));
    let other = producer.send_at("t", Message::new("y").id("mine"), at).await;
    assert!(matches!(other, Err(SendError::IdConflict(_))), "{other:?}");
    let replaced = Message::new("y").id("mine").replacing();
    let replaced = producer.send_at("t", replaced, at).await.unwrap();
    assert_ne!(replaced.id, by_time.id);

    let full = Message::new("z").key("k").header("traceparent", "00-1-2-01").ttl(HOUR);
    let level = producer.send_with_level("t", full, DelayLevel::H2).await.unwrap();
    let message = producer.get(&level.id).await.unwrap();
    assert_eq!((message.state, message.topic.as_str()), (State::Scheduled, "t"));
    assert_eq!(
        (message.key.as_deref(), message.body.as_deref()),
        (Some(&b"k"[..]), Some(&b"z"[..]))
    );
    assert_eq!((message.headers[0].name.as_str(), message.ttl), ("traceparent", Some(HOUR)));
    assert_eq!(producer.get(("t", "mine")).await.unwrap().id, replaced.id);
    assert_eq!(producer.get(("t", "nobody's")).await.unwrap_err().code(), "not_found");

    let bad = producer.send_delayed("t", Message::new("x"), Duration::MAX).await.unwrap_err();
    assert_eq!(bad.code(), "delay_too_long", "{bad}");
    let bad = producer.send("not a topic", Message::new("x")).await.unwrap_err();
    assert_eq!((bad.code(), bad.is_retriable()), ("invalid_topic_name", false), "{bad}");
    let series =
        Message::new("x").repeat(Repeat::cron("0 9 * * 1-5").zone("Asia/Shanghai").count(3));
    assert!(producer.send("t", series).await.is_ok());
}

#[tokio::test]
async fn one_refused_message_does_not_keep_the_others_from_being_stored() {
    let server = Server::start();
    let producer = client(&server).await.producer();
    let mut messages: Vec<Message> =
        (0..100).map(|number| Message::new(number.to_string()).delay(HOUR)).collect();
    messages[7] = Message::new("seven").partition(999);
    messages[50] = Message::new("fifty").delay(Duration::MAX);
    let outcomes = timeout(PATIENCE, producer.send_all("t", messages)).await.unwrap();
    let code = |place: usize| outcomes[place].as_ref().unwrap_err().code().to_owned();
    assert_eq!((code(7), code(50)), ("no_such_partition".to_owned(), "delay_too_long".to_owned()));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 98);
    let mut pages = producer.list("t", Filter::new().page_size(30));
    let mut listed = 0;
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.len() <= 30);
        listed += page.len();
    }
    assert_eq!(listed, 98);
}

#[tokio::test]
async fn pending_messages_are_changed_and_cancelled() {
    let server = Server::start();
    let client = client(&server).await;
    let producer = client.producer();
    let id = producer.send_delayed("t", Message::new("x").id("mine"), HOUR).await.unwrap().id;
    assert_eq!(producer.pause(&id).await.unwrap().state, State::Paused);
    let mut paused = producer.list("t", Filter::new().paused());
    assert_eq!(paused.next().await.unwrap().unwrap().id, id);
    assert_eq!(producer.resume(("t", "mine")).await.unwrap().state, State::Scheduled);
    let later = SystemTime::now() + 2 * HOUR;
    let moved = producer.reschedule_at(&id, later).await.unwrap();
    assert!(moved.due.unwrap() > SystemTime::now() + HOUR);
    let version = moved.version.unwrap();
    let change = Change::new().body("y").header("a", "b").version(version);
    let edited = producer.change(&id, change.clone()).await.unwrap();
    assert_eq!(edited.body.as_deref(), Some(&b"y"[..]));
    let stale = producer.change(&id, change).await;
    assert!(matches!(stale, Err(ChangeError::VersionConflict(_))), "{stale:?}");
    assert_eq!(producer.cancel(&id).await, Ok(Cancel::Cancelled));
    assert_eq!(producer.cancel_own("t", "mine").await, Ok(Cancel::AlreadyCancelled));
    let late = producer.reschedule(&id, HOUR).await;
    assert!(matches!(late, Err(ChangeError::AlreadyCancelled(_))), "{late:?}");
    assert_eq!(producer.cancel_own("t", "nobody's").await, Ok(Cancel::NotFound));

    let now = producer.send_delayed("t", Message::new("now"), HOUR).await.unwrap();
    producer.deliver_now(&now.id).await.unwrap();
    let consumer = client.consumer("t", "g");
    let received = timeout(PATIENCE, consumer.receive()).await.unwrap().unwrap();
    assert_eq!(received[0].text().unwrap(), "now");
    assert_eq!(producer.cancel(&now.id).await, Ok(Cancel::AlreadyDelivered));
    assert_eq!(consumer.extend(&received).await, Ok(vec![Settled::Extended]));
    let retry = Retry::after(Duration::ZERO);
    assert_eq!(consumer.nack(&received, retry).await, Ok(vec![Settled::Requeued]));
    assert_eq!(consumer.ack(&received).await, Ok(vec![Settled::NotHeld]));
    let again = timeout(PATIENCE, consumer.receive()).await.unwrap().unwrap();
    assert_eq!((again[0].id.as_ref(), again[0].attempt), (now.id.as_str(), 2));
    assert_eq!(consumer.ack(&again).await, Ok(vec![Settled::Acked]));
}

#[tokio::test]
async fn g24_an_ordered_consumer_handles_each_key_in_order_also_through_failures() {
    const KEYS: u32 = 5;
    const EACH: u32 = 20;
    let server = Server::start();
    let client = client(&server).await;
    let seen: Arc<Mutex<HashMap<String, Vec<u32>>>> = Arc::default();
    let (done, mut all) = mpsc::channel(1000);
    let told = Arc::clone(&seen);
    let consumer = client.consumer("t", "g").ordered().concurrency(8).start(move |delivery| {
        let (seen, done) = (Arc::clone(&told), done.clone());
        async move {
            let number: u32 = delivery.text()?.parse()?;
            if number % 7 == 3 && delivery.attempt == 1 {
                return Err(Retry::after(Duration::from_millis(1)).into());
            }
            let key = String::from_utf8(delivery.key.clone().unwrap_or_default().to_vec())?;
            seen.lock().unwrap().entry(key).or_default().push(number);
            done.send(()).await?;
            Ok(())
        }
    });
    let messages = (0..KEYS * EACH)
        .map(|number| Message::new((number / KEYS).to_string()).key((number % KEYS).to_string()));
    let outcomes = client.producer().send_all("t", messages).await;
    assert!(outcomes.iter().all(Result::is_ok));
    for _ in 0..KEYS * EACH {
        timeout(PATIENCE, all.recv()).await.unwrap().unwrap();
    }
    timeout(PATIENCE, consumer.stop()).await.unwrap().unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    assert!(seen.values().all(|numbers| numbers.is_sorted()), "{seen:?}");
}

#[tokio::test]
async fn a_token_lets_in_and_a_wrong_one_is_refused_by_name() {
    let data = TempDir::new().unwrap();
    let config = data.path().join("punctual.toml");
    std::fs::write(&config, "[auth]\nenabled = true\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    let server = Server::with(&["--http", "127.0.0.1:0", "--config", &config], data);
    let file = server.data.as_ref().unwrap().path().join("data/admin-token");
    let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
    let builder = || Client::builder(&server.url);
    let admin = builder().token(&token).user_agent("test/1").connect().await.unwrap();
    assert!(admin.producer().send("t", Message::new("x")).await.is_ok());
    let received = admin.consumer("t", "g").receive().await.unwrap();
    assert_eq!(received.len(), 1);
    for stranger in [builder(), builder().token("admin.wrong")] {
        let stranger = stranger.connect().await.unwrap();
        let refused = stranger.producer().send("t", Message::new("x")).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retriable()), ("unauthenticated", false));
        let refused = stranger.producer().cancel("x").await.unwrap_err();
        assert_eq!(refused.code(), "unauthenticated");
        let consumer = stranger.consumer("t", "g");
        let consuming = consumer.run(|_| async { Ok(()) });
        let refused = timeout(PATIENCE, consuming).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), "unauthenticated");
    }
}

/// An authority, and a server and a client that it vouches for, as files.
fn papers() -> TempDir {
    let papers = TempDir::new().unwrap();
    let write = |name: &str, text: String| {
        let path = papers.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    };
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    write("ca.pem", issuer.pem());
    for (name, host) in [("server", "127.0.0.1"), ("client", "shop")] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        write(&format!("{name}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    papers
}

#[tokio::test]
async fn a_client_speaks_tls_and_shows_its_certificate() {
    let papers = papers();
    let path = |name: &str| -> PathBuf { papers.path().join(name) };
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    let config = format!(
        "[tls]\ncert_file = {:?}\nkey_file = {:?}\nclient_ca_file = {:?}\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    std::fs::write(path("punctual.toml"), config).unwrap();
    let config = path("punctual.toml").to_str().unwrap().to_owned();
    let data = TempDir::new().unwrap();
    let server = Server::with(&["--http", "127.0.0.1:0", "--config", &config], data);
    let url = server.url.replace("http://", "https://");
    let trusting = Client::builder(&url).certificate_authority_file(path("ca.pem")).unwrap();
    let known = trusting.clone().client_certificate(read("client.pem"), read("client.key"));
    let known = known.connect().await.unwrap();
    assert!(known.producer().send("t", Message::new("x")).await.is_ok());
    let system = Client::builder(&url).connect().await.unwrap_err();
    assert_eq!(system.code(), "unreachable", "the system does not trust it: {system}");
    let other_name = trusting.clone().server_name("shop.example").connect().await.unwrap_err();
    assert_eq!(other_name.code(), "unreachable", "{other_name}");
    let nameless = trusting.retry(punctual_client::RetryPolicy {
        give_up_after: Duration::from_millis(500),
        ..punctual_client::RetryPolicy::default()
    });
    // With TLS 1.3 the server's refusal comes after the client's part is done.
    if let Ok(nameless) = nameless.connect().await {
        assert!(nameless.producer().send("t", Message::new("x")).await.is_err());
    }
}
