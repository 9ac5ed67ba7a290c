//! Who is let in at the Kafka listener, by which mechanism, and for how long? (G41, G42, G43)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod kafka;
mod support;

use access_support::admin_token;
use bytes::Bytes;
use kafka::Client;
use kafka::scram::{Hash, Scram};
use punctual_kafka_wire::messages::api_versions::ApiVersionsRequest;
use punctual_kafka_wire::messages::metadata::MetadataRequest;
use punctual_kafka_wire::messages::sasl_authenticate::{
    SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use punctual_kafka_wire::messages::sasl_handshake::SaslHandshakeRequest;
use serde_json::json;
use support::Server;

const UNSUPPORTED_MECHANISM: i16 = 33;
const ILLEGAL_STATE: i16 = 34;
const AUTHENTICATION_FAILED: i16 = 58;
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
const HASHES: [(&str, Hash); 2] =
    [("SCRAM-SHA-256", Hash::Sha256), ("SCRAM-SHA-512", Hash::Sha512)];

fn secured() -> Server {
    Server::with(&[("auth.enabled", "true")])
}

/// Makes an app that may do everything with topics; its secret.
fn app(server: &Server, key: &str, quotas: &serde_json::Value) -> String {
    let grant = json!([{"topics": "*", "groups": "*", "verbs": ["see", "send", "read"]}]);
    let mut admin = access_support::Client::new(server, &admin_token(server));
    let token = admin.create(key, &grant, quotas);
    token.strip_prefix(&format!("{key}.")).expect("the key comes first").to_owned()
}

fn choose(client: &mut Client, version: i16, mechanism: &str) -> i16 {
    let request = SaslHandshakeRequest { mechanism: mechanism.to_owned() };
    let answer = client.call(version, &request);
    assert_eq!(answer.mechanisms, MECHANISMS);
    answer.error_code
}

fn show(client: &mut Client, bytes: impl Into<Bytes>) -> SaslAuthenticateResponse {
    client.call(2, &SaslAuthenticateRequest { auth_bytes: bytes.into() })
}

fn plain(key: &str, secret: &str) -> String {
    format!("\0{key}\0{secret}")
}

fn is_in(client: &mut Client) -> bool {
    let asked = client.call(9, &MetadataRequest { topics: None, ..MetadataRequest::default() });
    asked.controller_id == 1
}

/// Shows who it is by SCRAM; the code of the last answer.
fn by_scram(client: &mut Client, (name, hash): (&str, Hash), key: &str, secret: &str) -> i16 {
    assert_eq!(choose(client, 1, name), 0);
    let mut scram = Scram::new(hash, key, secret);
    let first = show(client, scram.first());
    assert_eq!(first.error_code, 0, "{:?}", first.error_message);
    let last = show(client, scram.second(&first.auth_bytes));
    if last.error_code == 0 {
        scram.check(&last.auth_bytes);
    }
    last.error_code
}

#[test]
fn g43_nothing_but_the_way_in_is_open_to_strangers() {
    let server = secured();
    let mut client = Client::connect(&server);
    assert_eq!(client.call(3, &ApiVersionsRequest::default()).error_code, 0);
    client.send(9, &MetadataRequest::default());
    assert!(client.is_closed(), "it is not answered");
    for rule in punctual_server::rules::kafka_rules() {
        if rule.scope == "open" {
            continue;
        }
        let mut client = Client::connect(&server);
        for version in rule.versions {
            let mut head = rule.key.to_be_bytes().to_vec();
            head.extend_from_slice(&version.to_be_bytes());
            head.extend_from_slice(&[0, 0, 0, 1, 255, 255, 0, 0, 0, 0, 0, 0]);
            client.sized(&head);
            assert!(client.is_closed(), "{} {version}", rule.name);
            client = Client::connect(&server);
        }
    }
}

#[test]
fn an_app_is_let_in_with_its_secret_by_every_mechanism() {
    let server = secured();
    let secret = app(&server, "orders", &json!({}));
    let mut client = Client::connect(&server);
    assert_eq!(choose(&mut client, 1, "PLAIN"), 0);
    let answer = show(&mut client, plain("orders", &secret));
    assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 0));
    assert!(is_in(&mut client));
    for way in HASHES {
        let mut client = Client::connect(&server);
        assert_eq!(by_scram(&mut client, way, "orders", &secret), 0);
        assert!(is_in(&mut client));
    }
}

#[test]
fn the_administrator_comes_in_with_the_secret_or_the_whole_token() {
    let server = secured();
    let token = admin_token(&server);
    let secret = token.strip_prefix("admin.").unwrap();
    for password in [secret, token.as_str()] {
        let mut client = Client::connect(&server);
        assert_eq!(choose(&mut client, 1, "PLAIN"), 0);
        assert_eq!(show(&mut client, plain("admin", password)).error_code, 0);
        assert!(is_in(&mut client));
    }
    for way in HASHES {
        assert_eq!(by_scram(&mut Client::connect(&server), way, "admin", secret), 0);
    }
    let chosen = ("auth.admin_token", "admin.0123456789abcdef");
    let server = server.restarted(&[("auth.enabled", "true"), chosen]);
    for way in HASHES {
        let mut client = Client::connect(&server);
        assert_eq!(by_scram(&mut client, way, "admin", "0123456789abcdef"), 0);
        let refused = by_scram(&mut Client::connect(&server), way, "admin", secret);
        assert_eq!(refused, AUTHENTICATION_FAILED, "only the chosen one counts");
    }
}

#[test]
fn whoever_is_not_who_it_says_is_told_so_and_goes() {
    let server = secured();
    let secret = app(&server, "orders", &json!({}));
    app(&server, "other", &json!({}));
    for (key, wrong) in [
        ("orders", "wrong"),
        ("orders", ""),
        ("other", secret.as_str()),
        ("nobody", secret.as_str()),
        ("", secret.as_str()),
    ] {
        let mut client = Client::connect(&server);
        choose(&mut client, 1, "PLAIN");
        let answer = show(&mut client, plain(key, wrong));
        assert_eq!(answer.error_code, AUTHENTICATION_FAILED, "{key}");
        assert!(!answer.error_message.unwrap().contains(&secret));
        assert!(client.is_closed());
        if key.is_empty() {
            continue;
        }
        for way in HASHES {
            let mut client = Client::connect(&server);
            assert_eq!(by_scram(&mut client, way, key, wrong), AUTHENTICATION_FAILED, "{key}");
            assert!(client.is_closed());
        }
    }
    for message in ["", "orders", "\0orders", "\0orders\0x\0y", "else\0orders\0x", "\0\0\0\0"] {
        let mut client = Client::connect(&server);
        choose(&mut client, 1, "PLAIN");
        assert_eq!(show(&mut client, message).error_code, AUTHENTICATION_FAILED, "{message:?}");
        assert!(client.is_closed());
    }
    let acting = Client::connect(&server);
    let mut acting = acting;
    choose(&mut acting, 1, "PLAIN");
    let answer = show(&mut acting, format!("admin\0orders\0{secret}"));
    assert_eq!(answer.error_code, AUTHENTICATION_FAILED, "nobody acts for somebody else");
}

#[test]
fn who_does_not_exist_is_asked_like_everybody_else() {
    let server = secured();
    app(&server, "orders", &json!({}));
    let first = |key: &str| {
        let mut client = Client::connect(&server);
        choose(&mut client, 1, "SCRAM-SHA-256");
        let answer = show(&mut client, Scram::new(Hash::Sha256, key, "x").first()).auth_bytes;
        let text = String::from_utf8(answer.to_vec()).unwrap();
        let (_, rest) = text.split_once(",s=").unwrap();
        rest.to_owned()
    };
    assert_eq!(first("nobody"), first("nobody"), "the same salt every time");
    assert_ne!(first("nobody"), first("somebody"));
    assert_eq!(first("nobody").len(), first("orders").len());
    assert!(first("nobody").ends_with(",i=4096"));
}

#[test]
fn a_proof_counts_for_the_exchange_that_it_was_made_for() {
    let server = secured();
    let secret = app(&server, "orders", &json!({}));
    let (name, hash) = HASHES[0];
    type Spoil = fn(String) -> String;
    let spoils: [(&str, Spoil); 6] = [
        ("another number", |text| text.replacen(",r=", ",r=x", 1)),
        ("another channel", |text| text.replacen("c=biws", "c=eSws", 1)),
        ("no channel", |text| text.replacen("c=biws,", "", 1)),
        ("something to be understood", |text| text.replacen(",p=", ",m=1,p=", 1)),
        ("no proof", |text| text.split(",p=").next().unwrap().to_owned()),
        ("half a proof", |text| text[..text.len() - 8].to_owned()),
    ];
    for (what, spoil) in spoils {
        let mut client = Client::connect(&server);
        choose(&mut client, 1, name);
        let mut scram = Scram::new(hash, "orders", &secret);
        let first = show(&mut client, scram.first());
        let second = spoil(scram.second(&first.auth_bytes));
        assert_eq!(show(&mut client, second).error_code, AUTHENTICATION_FAILED, "{what}");
        assert!(client.is_closed(), "{what}");
    }
    // Overheard and said again.
    let mut client = Client::connect(&server);
    choose(&mut client, 1, name);
    let mut scram = Scram::new(hash, "orders", &secret);
    let (first, asked) = (scram.first(), show(&mut client, scram.first()));
    let second = scram.second(&asked.auth_bytes);
    assert_eq!(show(&mut client, second.clone()).error_code, 0);
    let mut thief = Client::connect(&server);
    choose(&mut thief, 1, name);
    show(&mut thief, first);
    assert_eq!(show(&mut thief, second).error_code, AUTHENTICATION_FAILED);
}

#[test]
fn steps_out_of_order_end_the_connection() {
    let server = secured();
    let secret = app(&server, "orders", &json!({}));
    let mut client = Client::connect(&server);
    assert_eq!(show(&mut client, plain("orders", &secret)).error_code, ILLEGAL_STATE);
    assert!(client.is_closed());
    let mut client = Client::connect(&server);
    assert_eq!(choose(&mut client, 1, "GSSAPI"), UNSUPPORTED_MECHANISM);
    assert!(client.is_closed());
    let open = Server::start();
    let mut client = Client::connect(&open);
    let request = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    assert_eq!(client.call(1, &request).error_code, ILLEGAL_STATE, "nobody has to say anything");
    assert!(is_in(&mut client));
}

#[test]
fn older_clients_send_what_follows_without_a_head() {
    let server = secured();
    let secret = app(&server, "orders", &json!({}));
    let mut client = Client::connect(&server);
    assert_eq!(choose(&mut client, 0, "PLAIN"), 0);
    client.sized(plain("orders", &secret).as_bytes());
    assert!(client.frame().unwrap().is_empty());
    assert!(is_in(&mut client));
    for (name, hash) in HASHES {
        let mut client = Client::connect(&server);
        assert_eq!(choose(&mut client, 0, name), 0);
        let mut scram = Scram::new(hash, "orders", &secret);
        client.sized(scram.first().as_bytes());
        let asked = client.frame().unwrap();
        client.sized(scram.second(&asked).as_bytes());
        scram.check(&client.frame().unwrap());
        assert!(is_in(&mut client));
    }
    let mut client = Client::connect(&server);
    choose(&mut client, 0, "PLAIN");
    client.sized(plain("orders", "wrong").as_bytes());
    assert!(client.is_closed());
}

#[test]
fn both_secrets_count_while_one_takes_the_place_of_the_other() {
    let server = secured();
    let old = app(&server, "orders", &json!({}));
    let mut admin = access_support::Client::new(&server, &admin_token(&server));
    let rotated = admin.done("POST", "/v1/apps/orders/rotate", &json!({"keep_old": "1h"}));
    let token = rotated["token"].as_str().unwrap();
    let new = token.strip_prefix("orders.").unwrap();
    for secret in [&old, new] {
        for way in HASHES {
            assert_eq!(by_scram(&mut Client::connect(&server), way, "orders", secret), 0);
        }
        let mut client = Client::connect(&server);
        choose(&mut client, 1, "PLAIN");
        assert_eq!(show(&mut client, plain("orders", secret)).error_code, 0);
    }
    admin.done("POST", "/v1/apps/orders/rotate", &json!({}));
    for secret in [&old, new] {
        let code = by_scram(&mut Client::connect(&server), HASHES[0], "orders", secret);
        assert_eq!(code, AUTHENTICATION_FAILED);
    }
}

#[test]
fn who_is_in_may_show_it_again_but_not_become_somebody_else() {
    let server = secured();
    let (one, other) = (app(&server, "one", &json!({})), app(&server, "other", &json!({})));
    let mut client = Client::connect(&server);
    assert_eq!(by_scram(&mut client, HASHES[0], "one", &one), 0);
    assert_eq!(by_scram(&mut client, HASHES[1], "one", &one), 0, "shown again");
    assert!(is_in(&mut client));
    assert_eq!(by_scram(&mut client, HASHES[0], "other", &other), AUTHENTICATION_FAILED);
    assert!(client.is_closed());
}

#[test]
fn a_disabled_app_loses_its_connection_at_its_next_request() {
    let server = secured();
    let secret = app(&server, "orders", &json!({}));
    let mut client = Client::connect(&server);
    assert_eq!(by_scram(&mut client, HASHES[0], "orders", &secret), 0);
    assert!(is_in(&mut client));
    let mut admin = access_support::Client::new(&server, &admin_token(&server));
    admin.done("POST", "/v1/apps/orders/disable", &json!({}));
    client.send(9, &MetadataRequest::default());
    assert!(client.is_closed());
    let code = by_scram(&mut Client::connect(&server), HASHES[0], "orders", &secret);
    assert_eq!(code, AUTHENTICATION_FAILED);
    admin.done("POST", "/v1/apps/orders/enable", &json!({}));
    assert_eq!(by_scram(&mut Client::connect(&server), HASHES[0], "orders", &secret), 0);
}

#[test]
fn g41_an_app_has_as_many_connections_as_it_may() {
    let server = secured();
    let secret = app(&server, "orders", &json!({"connections": 2}));
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        assert_eq!(by_scram(client, HASHES[0], "orders", &secret), 0);
    }
    let mut third = Client::connect(&server);
    assert_eq!(by_scram(&mut third, HASHES[0], "orders", &secret), AUTHENTICATION_FAILED);
    assert!(third.is_closed());
    drop(clients.pop());
    let deadline = std::time::Instant::now() + support::PATIENCE;
    while by_scram(&mut Client::connect(&server), HASHES[0], "orders", &secret) != 0 {
        assert!(std::time::Instant::now() < deadline, "the seat is never free again");
    }
}
