//! What to try next after a failure.
//!
//! The reason of a failure is told elsewhere, in full; this adds what a person would look up.

use std::io;

use serde_json::Value;

use crate::client::{Client, Refusal, escaped, is_tls};
use crate::output::harmless;

/// How alike two names must be for one to be a slip of the other: 0 to 1.
const ALIKE_MIN: f64 = 0.7;
/// How many names are looked through.
const NAMES_MAX: usize = 1000;

const DURATIONS: &str =
    "a duration is written 250ms, 30s, 1h30m, 40d, PT30S, or as a number of milliseconds";
const TIMES: &str = "a time is written 2030-01-31T09:00:00Z, 2030-01-31T09:00:00+01:00, or as epoch milliseconds; \
                     `date -d 'tomorrow 09:00' --iso-8601=seconds` writes one";
const TOKEN: &str = "pass a token with PUNCTUAL_TOKEN=KEY.SECRET or --token; a new server has written its first one \
                     to the file admin-token in its data directory";

/// What to try next, if there is something to say.
pub(super) fn on(error: &anyhow::Error, client: &Client) -> Option<String> {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return on_refusal(refusal, client);
    }
    let transport = error.downcast_ref::<ureq::Error>()?;
    Some(on_transport(transport, client.server()))
}

fn on_refusal(refusal: &Refusal, client: &Client) -> Option<String> {
    let text = match refusal.code.as_str() {
        "topic_not_found" => return nearest_topic(refusal, client),
        "group_not_found" => return nearest_group(refusal, client),
        "app_not_found" => return nearest_app(refusal, client),
        "not_found" if refusal.path.starts_with("/v1/messages/") => {
            "an id of your own is found with --topic TOPIC"
        }
        "invalid_request" if !is_tls(client.server()) && refusal.detail.contains("TLS") => {
            return Some(with_tls(client.server()));
        }
        "invalid_delay" | "invalid_shift" | "interval_too_short" => DURATIONS,
        "invalid_time" | "due_out_of_range" => TIMES,
        "unknown_zone" => "a zone is a name of the IANA database, such as Europe/Berlin or UTC",
        "invalid_cron" | "cron_never_fires" => {
            "an expression has five fields, minute hour day month weekday, or six with seconds first: '0 9 * * 1-5'"
        }
        "unknown_level" => "`punctual levels` shows what each level means",
        "empty_filter" => "give a filter such as --key, or --all if every one is meant",
        "unauthenticated" => TOKEN,
        "forbidden" => {
            "the app of this token lacks the right: `punctual apps set APP --allow VERBS:TOPICS[:GROUPS]` with the \
             admin token gives it"
        }
        "quota_exceeded" => {
            "`punctual apps show APP` shows the quotas; wait, or raise one with `punctual apps set`"
        }
        "not_a_cluster" => "slots are divided among nodes that share a timeline: docs/CLUSTER.md",
        "not_virtual_time" => "time moves by hand only where the server runs with --virtual-time",
        _ => return None,
    };
    Some(text.to_owned())
}

fn nearest_topic(refusal: &Refusal, client: &Client) -> Option<String> {
    let asked = part(&refusal.path, "topics")?;
    let names = names(client, "/v1/topics", "topics", "name");
    Some(suggestion(&asked, &names, "`punctual topics` lists those there are"))
}

fn nearest_group(refusal: &Refusal, client: &Client) -> Option<String> {
    let (topic, asked) = (part(&refusal.path, "topics")?, part(&refusal.path, "groups")?);
    let path = format!("/v1/topics/{}/groups", escaped(&topic));
    let names = names(client, &path, "groups", "name");
    let otherwise = format!("`punctual groups list {}` lists those there are", harmless(&topic));
    Some(suggestion(&asked, &names, &otherwise))
}

fn nearest_app(refusal: &Refusal, client: &Client) -> Option<String> {
    let asked = part(&refusal.path, "apps")?;
    let names = names(client, "/v1/apps", "apps", "key");
    Some(suggestion(&asked, &names, "`punctual apps` lists those there are"))
}

/// The part of a path after a word, as it was meant.
fn part(path: &str, word: &str) -> Option<String> {
    let path = path.split('?').next().unwrap_or(path);
    let mut parts = path.split('/').skip_while(|part| *part != word);
    let raw = parts.nth(1)?;
    // Only our own escapes are undone: `%` and two digits for every byte that is no letter.
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The names there are; none when even they cannot be had.
fn names(client: &Client, path: &str, list: &str, name: &str) -> Vec<String> {
    let page = client.get(&format!("{path}?limit={NAMES_MAX}")).unwrap_or_default();
    let elements = page[list].as_array().into_iter().flatten();
    elements.filter_map(|element: &Value| element[name].as_str().map(str::to_owned)).collect()
}

fn suggestion(asked: &str, names: &[String], otherwise: &str) -> String {
    let alike = names.iter().map(|name| (strsim::jaro_winkler(asked, name), name));
    let nearest = alike.filter(|(alike, _)| *alike >= ALIKE_MIN).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, name)) => format!("did you mean `{}`?", harmless(name)),
        None => otherwise.to_owned(),
    }
}

/// What stands between us and the server.
fn on_transport(error: &ureq::Error, server: &str) -> String {
    let server = harmless(server);
    let io = match error {
        ureq::Error::Io(error) => Some(error),
        _ => None,
    };
    let tls = io.and_then(|error| error.get_ref()?.downcast_ref::<rustls::Error>());
    let tls = match (error, tls) {
        (ureq::Error::Rustls(error), _) | (_, Some(error)) => Some(error),
        _ => None,
    };
    if let Some(error) = tls {
        return on_tls(error, &server);
    }
    match (error, io.map(io::Error::kind)) {
        (_, Some(io::ErrorKind::ConnectionRefused)) => {
            "is it running? start it with `punctual serve`, or name another with --server"
                .to_owned()
        }
        _ if is_unknown_host(error) => {
            "there is no machine of that name; is --server or PUNCTUAL_SERVER right?".to_owned()
        }
        (ureq::Error::Timeout(_), _) => {
            "it took too long; is --server or PUNCTUAL_SERVER right, and the server not overloaded?"
                .to_owned()
        }
        _ if !is_tls(&server) => with_tls(&server),
        _ => "the connection broke off; is the server still running?".to_owned(),
    }
}

fn with_tls(server: &str) -> String {
    let secure = harmless(&server.replacen("http://", "https://", 1));
    format!("if the server speaks TLS, name it with --server {secure}")
}

/// The system tells this in words only.
fn is_unknown_host(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::HostNotFound) || error.to_string().contains("lookup address")
}

fn on_tls(error: &rustls::Error, server: &str) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error};
    match error {
        Error::InvalidMessage(_) => {
            let plain = server.replacen("https://", "http://", 1);
            format!("that port does not speak TLS; name it with --server {plain}")
        }
        Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "the server's certificate is from an authority that this system does not know; name it with --ca-file FILE"
                .to_owned()
        }
        Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "the server's certificate is for another name; use a name or address that it lists in --server"
                .to_owned()
        }
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "the server's certificate has run out; renew it there, or set the clock here".to_owned()
        }
        Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure) => {
            "the server wants a certificate; give one with --cert FILE --cert-key FILE".to_owned()
        }
        Error::AlertReceived(_) => {
            "the server did not like the connection; is the certificate of --cert one that it trusts?"
                .to_owned()
        }
        _ => "is it a server of punctual with TLS, and this the right port?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_from_another_name() {
        let names = ["orders".to_owned(), "letters".to_owned(), "orders.eu".to_owned()];
        let of = |asked| suggestion(asked, &names, "look");
        assert_eq!(of("ordesr"), "did you mean `orders`?");
        assert_eq!(of("Letter"), "did you mean `letters`?");
        assert_eq!(of("billing"), "look");
        assert_eq!(suggestion("orders", &[], "look"), "look");
    }

    #[test]
    fn a_name_is_read_from_a_path() {
        let path = format!("/v1/topics/{}/groups/{}?limit=1", escaped("a b/c"), escaped("grö"));
        assert_eq!(part(&path, "topics").as_deref(), Some("a b/c"));
        assert_eq!(part(&path, "groups").as_deref(), Some("grö"));
        assert_eq!(part(&path, "apps"), None);
    }
}
