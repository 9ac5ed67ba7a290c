//! Who is let in, with which right, and for how long?

use std::sync::atomic::AtomicU64;

use http::HeaderValue;
use punctual_model::GroupName;
use punctual_testkit::forgetful::ForgetfulDisk;

use super::*;
use crate::access::files::AppFiles;
use crate::access::grant::{Grant, Owner, Pattern};
use crate::access::quota::Quotas;

/// A gate on a disk of its own, with a clock that is moved by hand.
struct Stage {
    disk: ForgetfulDisk,
    clock: Arc<AtomicU64>,
    pending: Arc<AtomicU64>,
    gate: Gate,
    first: FirstToken,
}

fn stage(disk: ForgetfulDisk, enabled: bool, chosen: Option<&str>) -> Stage {
    let (clock, pending) = (Arc::new(AtomicU64::new(1000)), Arc::new(AtomicU64::new(0)));
    let (now, count) = (Arc::clone(&clock), Arc::clone(&pending));
    let topic = TopicName::new("orders").unwrap();
    let facts = Facts {
        owner: Box::new(|_| Owner::Nobody),
        pending: Box::new(move || vec![(topic.clone(), count.load(Ordering::Relaxed))]),
        now: Box::new(move || Timestamp::from_millis(now.load(Ordering::Relaxed)).unwrap()),
    };
    let chosen = chosen.map(|text| AdminToken::read(text).unwrap().unwrap());
    let files = AppFiles::open(Arc::new(disk.clone())).unwrap();
    let (gate, first) =
        Gate::open(Auth { enabled, admin: chosen, nodes: None }, files, facts).unwrap();
    Stage { disk, clock, pending, gate, first }
}

impl Stage {
    fn new() -> Self {
        stage(ForgetfulDisk::new(), true, None)
    }

    fn create(&self, key: &str, quotas: Quotas) -> String {
        let key = AppKey::new(key).unwrap();
        let grant = Grant {
            topics: Pattern::read("orders").unwrap(),
            groups: None,
            verbs: vec![Permission::Send],
        };
        let (record, secret) = self
            .gate
            .create(key, |record| {
                record.grants = vec![grant];
                record.quotas = quotas;
            })
            .unwrap();
        secret.token(&record.key)
    }

    fn admin_token(&self) -> String {
        let file = self.disk.read_file(std::path::Path::new("admin-token")).unwrap();
        String::from_utf8(file).unwrap().trim_end().to_owned()
    }
}

fn with_header(gate: &Gate, header: &str) -> Result<Caller, Problem> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(header).unwrap());
    gate.identify(&headers, &Extensions::new())
}

fn let_in(gate: &Gate, token: &str) -> bool {
    match with_header(gate, &format!("Bearer {token}")) {
        Ok(Caller::App(_)) => true,
        Ok(other) => panic!("{other:?}"),
        Err(problem) => {
            assert_eq!(problem, unauthenticated());
            false
        }
    }
}

#[test]
fn without_authentication_everybody_is_local() {
    let stage = stage(ForgetfulDisk::new(), false, None);
    assert_eq!(stage.first, FirstToken::Known);
    assert!(matches!(
        stage.gate.identify(&HeaderMap::new(), &Extensions::new()),
        Ok(Caller::Local)
    ));
    assert!(matches!(with_header(&stage.gate, "Bearer x.y"), Ok(Caller::Local)));
    assert!(!stage.disk.files().iter().any(|name| name.contains("admin-token")));
}

#[test]
fn only_the_very_token_lets_in() {
    let stage = Stage::new();
    let token = stage.create("orders", Quotas::default());
    let other = stage.create("stock", Quotas::default());
    let (key, secret) = token.split_once('.').unwrap();
    let (_, foreign) = other.split_once('.').unwrap();
    assert!(let_in(&stage.gate, &token) && let_in(&stage.gate, &other));
    let long = format!("orders.{}", "x".repeat(2000));
    for wrong in [
        "",
        ".",
        "orders",
        "orders.",
        &format!(".{secret}"),
        secret,
        &format!("{key}.{foreign}"),
        &format!("nobody.{secret}"),
        &format!("{key}.{}", secret.to_uppercase()),
        &format!("{key}.{secret}x"),
        &format!("{key}.{}", &secret[1..]),
        &format!("{key}.{secret}.{secret}"),
        &format!("{key}.."),
        &format!("{key} {secret}"),
        // A signed token of another kind with its signature left out.
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.",
        "orders.0000000000000000000000000000000000000000000000000000000000000000",
        "../admin.x",
        &long,
    ] {
        assert!(!let_in(&stage.gate, wrong), "{wrong}");
    }
    for scheme in ["bearer", "BEARER"] {
        assert!(with_header(&stage.gate, &format!("{scheme} {token}")).is_ok(), "{scheme}");
    }
    for header in
        [token.clone(), format!("Basic {token}"), format!("Bearer{token}"), "Bearer".into()]
    {
        assert!(with_header(&stage.gate, &header).is_err(), "{header}");
    }
    let mut twice = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    twice.append(AUTHORIZATION, value.clone());
    twice.append(AUTHORIZATION, value);
    assert!(stage.gate.identify(&twice, &Extensions::new()).is_err(), "which one counts is open");
    let bytes = HeaderValue::from_bytes(b"Bearer orders.\xff\xfe").unwrap();
    let mut binary = HeaderMap::new();
    binary.insert(AUTHORIZATION, bytes);
    assert!(stage.gate.identify(&binary, &Extensions::new()).is_err());
    assert!(stage.gate.identify(&HeaderMap::new(), &Extensions::new()).is_err());
}

#[test]
fn an_old_secret_counts_as_long_as_was_said() {
    let stage = Stage::new();
    let first = stage.create("orders", Quotas::default());
    let (_, second) = stage.gate.rotate("orders", Some(Span::from_secs(1))).unwrap();
    let second = second.token(&AppKey::new("orders").unwrap());
    assert!(let_in(&stage.gate, &first) && let_in(&stage.gate, &second));
    stage.clock.store(1999, Ordering::Relaxed);
    assert!(let_in(&stage.gate, &first));
    stage.clock.store(2000, Ordering::Relaxed);
    assert!(!let_in(&stage.gate, &first) && let_in(&stage.gate, &second));
    let (_, third) = stage.gate.rotate("orders", None).unwrap();
    assert!(!let_in(&stage.gate, &second), "without a time it ends at once");
    assert!(let_in(&stage.gate, &third.token(&AppKey::new("orders").unwrap())));
}

#[test]
fn what_changes_counts_at_once_and_after_a_restart() {
    let stage = Stage::new();
    let (token, topic) =
        (stage.create("orders", Quotas::default()), TopicName::new("orders").unwrap());
    let caller = with_header(&stage.gate, &format!("Bearer {token}")).unwrap();
    let may = || caller.may(Permission::Send, Target::Topic(&topic));
    assert!(may() && caller.still_stands().is_ok());
    stage.gate.change("orders", |record| record.enabled = false).unwrap();
    assert!(!may() && !let_in(&stage.gate, &token));
    assert_eq!(caller.still_stands().unwrap_err().code, Code::Unauthenticated);
    assert_eq!(caller.charge(Cost::default()).unwrap_err().code, Code::Unauthenticated);
    stage.gate.change("orders", |record| record.enabled = true).unwrap();
    assert!(may() && let_in(&stage.gate, &token));
    stage.gate.change("orders", |record| record.grants.clear()).unwrap();
    assert!(!may() && let_in(&stage.gate, &token));
    let again = self::stage(stage.disk.reopen(), true, None);
    assert!(let_in(&again.gate, &token) && again.gate.get("orders").unwrap().grants.is_empty());
    stage.gate.delete("orders").unwrap();
    assert!(!let_in(&stage.gate, &token) && caller.still_stands().is_err());
    let other = stage.create("orders", Quotas::default());
    assert!(!let_in(&stage.gate, &token) && let_in(&stage.gate, &other));
    assert!(caller.still_stands().is_err(), "another app of the same key is another app");
    assert!(matches!(stage.gate.delete("absent"), Err(AppError::NotFound)));
}

#[test]
fn the_administrator_gets_a_token_once_and_may_do_everything() {
    let stage = Stage::new();
    assert_eq!(stage.first, FirstToken::Made);
    let token = stage.admin_token();
    let caller = with_header(&stage.gate, &format!("Bearer {token}")).unwrap();
    let (topic, group) = (TopicName::new("x").unwrap(), GroupName::new("y").unwrap());
    for permission in Permission::GRANTED {
        for target in [Target::Whole, Target::Topic(&topic), Target::Group(&topic, &group)] {
            assert!(caller.may(permission, target), "{permission:?} {target:?}");
        }
    }
    for refused in [
        stage.gate.delete("admin").unwrap_err(),
        stage.gate.change("admin", |record| record.enabled = false).unwrap_err(),
        stage.gate.create(AppKey::admin(), |_| ()).unwrap_err(),
    ] {
        assert!(matches!(refused, AppError::Reserved(_)), "{refused}");
    }
    let again = self::stage(stage.disk.reopen(), true, None);
    assert_eq!((again.first, let_in(&again.gate, &token)), (FirstToken::Known, true));
    let (_, new) = again.gate.rotate("admin", None).unwrap();
    assert_eq!(again.admin_token(), new.token(&AppKey::admin()), "the file has the new one");
    assert!(!let_in(&again.gate, &token) && let_in(&again.gate, &again.admin_token()));
}

#[test]
fn a_chosen_token_takes_the_place_of_every_other() {
    let stage = Stage::new();
    let made = stage.admin_token();
    let chosen = "admin.0123456789abcdef";
    let again = self::stage(stage.disk.reopen(), true, Some(chosen));
    assert!(let_in(&again.gate, chosen) && !let_in(&again.gate, &made));
    assert!(matches!(again.gate.rotate("admin", None), Err(AppError::Reserved(_))));
    let other = AdminToken::read("admin.fedcba9876543210").unwrap();
    again.gate.set_admin_token(other.as_ref());
    assert!(!let_in(&again.gate, chosen) && let_in(&again.gate, "admin.fedcba9876543210"));
    again.gate.set_admin_token(None);
    assert!(!let_in(&again.gate, "admin.fedcba9876543210") && let_in(&again.gate, &made));
    let fresh = self::stage(ForgetfulDisk::new(), true, Some(chosen));
    assert_eq!(fresh.first, FirstToken::Known);
    assert!(let_in(&fresh.gate, chosen) && fresh.gate.get("admin").is_some());
    assert!(
        !fresh.disk.files().iter().any(|name| name.contains("admin")),
        "it is not written down"
    );
    fresh.gate.set_admin_token(None);
    assert!(!let_in(&fresh.gate, chosen));
}

#[test]
fn g41_a_quota_is_that_of_one_app() {
    let stage = Stage::new();
    let slow = Quotas { messages_per_second: Some(1), ..Quotas::default() };
    let (slow, free) = (stage.create("slow", slow), stage.create("free", Quotas::default()));
    let caller = |token: &str| with_header(&stage.gate, &format!("Bearer {token}")).unwrap();
    let one = Cost { messages: 1, bytes: 1 };
    drop(caller(&slow).charge(one).unwrap());
    let refused = caller(&slow).charge(Cost { messages: 1000, bytes: 1 }).unwrap_err();
    assert_eq!((refused.code, refused.retry_after), (Code::QuotaExceeded, Some(1)));
    for _ in 0..1000 {
        drop(caller(&free).charge(one).unwrap());
    }
    let full = Quotas { pending: Some(3), ..Quotas::default() };
    let full = stage.create("full", full);
    stage.pending.store(2, Ordering::Relaxed);
    let charged = caller(&full).charge(one).unwrap();
    assert_eq!(caller(&full).charge(one).unwrap_err().code, Code::QuotaExceeded);
    drop(charged);
    assert_eq!(caller(&full).charge(one).unwrap_err().code, Code::QuotaExceeded);
    drop(caller(&free).charge(one).unwrap());
}

#[test]
fn connections_are_seats_that_are_given_back() {
    let stage = Stage::new();
    let token = stage.create("orders", Quotas { connections: Some(2), ..Quotas::default() });
    let admin = stage.admin_token();
    let ask = |connection: &Arc<Connection>, token: &str| {
        let mut extensions = Extensions::new();
        extensions.insert(Arc::clone(connection));
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        headers.insert(AUTHORIZATION, value);
        stage.gate.identify(&headers, &extensions).map(drop).map_err(|problem| problem.code)
    };
    let connections: Vec<Arc<Connection>> = (0..3).map(|_| Arc::default()).collect();
    for _ in 0..5 {
        assert_eq!(ask(&connections[0], &token), Ok(()), "one connection is one seat");
    }
    assert_eq!(ask(&connections[1], &token), Ok(()));
    assert_eq!(ask(&connections[2], &token), Err(Code::QuotaExceeded));
    assert_eq!(ask(&connections[2], &admin), Ok(()), "others have seats of their own");
    assert_eq!(ask(&connections[2], "orders.wrong"), Err(Code::Unauthenticated));
    let mut connections = connections.into_iter();
    drop(connections.next());
    let (second, third) = (connections.next().unwrap(), connections.next().unwrap());
    assert_eq!(ask(&third, &token), Ok(()));
    assert_eq!(ask(&second, &token), Ok(()));
    assert_eq!(ask(&Arc::default(), &token), Err(Code::QuotaExceeded));
}

#[test]
fn there_is_a_bound_to_apps_and_they_are_listed_in_pages() {
    let stage = stage(ForgetfulDisk::new(), false, None);
    for number in 0..5 {
        stage.create(&format!("app-{number}"), Quotas::default());
    }
    let keys = |page: &[Arc<AppRecord>]| -> Vec<String> {
        page.iter().map(|record| record.key.to_string()).collect()
    };
    let (page, more) = stage.gate.list(None, 3);
    assert_eq!((keys(&page), more), (vec!["app-0".into(), "app-1".into(), "app-2".into()], true));
    let (page, more) = stage.gate.list(Some("app-2"), 3);
    assert_eq!((keys(&page), more), (vec!["app-3".into(), "app-4".into()], false));
    let same = stage.gate.create(AppKey::new("app-1").unwrap(), |_| ());
    assert!(matches!(same, Err(AppError::Exists)));
    {
        let mut apps = stage.gate.inner.apps.write();
        let app = App::new(AppRecord::new(AppKey::admin(), NEVER, Timestamp::MIN));
        for number in apps.len()..APPS_MAX {
            apps.insert(AppKey::new(&format!("x{number}")).unwrap(), Arc::clone(&app));
        }
    }
    let over = stage.gate.create(AppKey::new("one-more").unwrap(), |_| ());
    assert!(matches!(over, Err(AppError::TooMany)));
}
