//! What a browser shows instead of a secret: a sealed text that stands for an app for some hours.
//!
//! Nothing is kept of a session. The text says whose it is and until when, and its seal, which only
//! this server or this cluster can make, covers the hash of the secret that was shown: with the secret
//! its sessions end. What was signed out of is remembered until its time has come.
//!
//! A browser sends the text with every request, also with those that a foreign page makes it send. So
//! what changes something needs a proof as well: another seal, which only a page that can read our
//! answers gets to know.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use punctual_model::{Span, Timestamp};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::access::record::{AppKey, SecretHash};

/// For how long a session counts.
pub(crate) const SESSION_TIME: Span = Span::from_secs(12 * 3600);
/// Longest text that is looked at.
const TEXT_BYTES_MAX: usize = 256;
const NONCE_BYTES: usize = 16;
/// Sessions that were signed out of and are remembered; past that the oldest are forgotten.
const ENDED_MAX: usize = 10_000;

/// Makes and knows the seals.
pub(crate) struct Sessions {
    key: Hmac<Sha256>,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    nonces: BTreeMap<String, Timestamp>,
    by_time: BTreeSet<(Timestamp, String)>,
}

/// A session as somebody shows it; whether it counts is yet to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown<'a> {
    /// For which app.
    pub(crate) app: &'a str,
    /// Until when.
    pub(crate) until: Timestamp,
    nonce: &'a str,
    /// All that the seal covers.
    said: &'a str,
    seal: &'a str,
}

impl<'a> Shown<'a> {
    /// What the text says.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (said, seal) = text.rsplit_once('.')?;
        let mut parts = said.split('.');
        let (app, until, nonce) = (parts.next()?, parts.next()?, parts.next()?);
        let until = until.bytes().all(|byte| byte.is_ascii_digit()).then_some(until)?;
        let until = Timestamp::from_millis(until.parse().ok()?)?;
        parts.next().is_none().then_some(Self { app, until, nonce, said, seal })
    }
}

impl Sessions {
    /// Those of one server: with the process they end.
    ///
    /// # Errors
    /// When the system has no chance to give.
    pub(crate) fn make() -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        Ok(Self::with(&key))
    }

    /// Those of all nodes that know this secret.
    pub(crate) fn shared(secret: &str) -> Self {
        Self::with(&Sha256::digest(format!("sessions of the console\0{secret}")))
    }

    fn with(key: &[u8]) -> Self {
        let key = Hmac::new_from_slice(key).expect("a key may have any length");
        Self { key, ended: Mutex::default() }
    }

    /// A new session of that app, which has shown the secret with that hash.
    ///
    /// # Errors
    /// When the system has no chance to give.
    pub(crate) fn begin(
        &self,
        app: &AppKey,
        secret: &SecretHash,
        until: Timestamp,
    ) -> io::Result<String> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let said = format!("{app}.{}.{}", until.as_millis(), URL_SAFE_NO_PAD.encode(nonce));
        let seal = self.seal("session", &said, secret);
        Ok(format!("{said}.{seal}"))
    }

    /// Whether it counts, for an app whose secret has that hash.
    pub(crate) fn counts(&self, shown: Shown<'_>, secret: &SecretHash, now: Timestamp) -> bool {
        let seal = self.seal("session", shown.said, secret);
        let sealed = bool::from(seal.as_bytes().ct_eq(shown.seal.as_bytes()));
        sealed && now < shown.until && !self.ended.lock().nonces.contains_key(shown.nonce)
    }

    /// What a page of ours adds to a request that changes something.
    pub(crate) fn proof(&self, shown: Shown<'_>) -> String {
        self.seal("proof", shown.said, shown.seal.as_bytes())
    }

    /// Whether that is the proof.
    pub(crate) fn is_proof(&self, shown: Shown<'_>, proof: &[u8]) -> bool {
        bool::from(self.proof(shown).as_bytes().ct_eq(proof))
    }

    /// From now on it does not count here any more.
    pub(crate) fn end(&self, shown: Shown<'_>, now: Timestamp) {
        let mut ended = self.ended.lock();
        while let Some((until, nonce)) = ended.by_time.first().cloned() {
            if until > now && ended.by_time.len() < ENDED_MAX {
                break;
            }
            ended.by_time.pop_first();
            ended.nonces.remove(&nonce);
        }
        let nonce = shown.nonce.to_owned();
        if ended.nonces.insert(nonce.clone(), shown.until).is_none() {
            ended.by_time.insert((shown.until, nonce));
        }
    }

    fn seal(&self, what: &str, said: &str, more: &[u8]) -> String {
        let mut mac = self.key.clone();
        // Neither has a zero byte, so no two of them run into one another.
        mac.update(what.as_bytes());
        mac.update(b"\0");
        mac.update(said.as_bytes());
        mac.update(b"\0");
        mac.update(more);
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: SecretHash = [7; 32];

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis_saturating(secs * 1000)
    }

    fn begun(sessions: &Sessions) -> String {
        let app = AppKey::new("orders-service").unwrap();
        sessions.begin(&app, &SECRET, at(1000)).unwrap()
    }

    #[test]
    fn a_session_counts_until_its_time_for_its_secret_where_it_was_made() {
        let sessions = Sessions::make().unwrap();
        let text = begun(&sessions);
        let shown = Shown::read(&text).unwrap();
        assert_eq!((shown.app, shown.until), ("orders-service", at(1000)));
        assert!(sessions.counts(shown, &SECRET, at(999)));
        assert!(!sessions.counts(shown, &SECRET, at(1000)));
        assert!(!sessions.counts(shown, &[8; 32], at(999)), "its secret was changed");
        assert!(!Sessions::make().unwrap().counts(shown, &SECRET, at(999)));
        let (here, there) = (Sessions::shared("of all nodes"), Sessions::shared("of all nodes"));
        let text = begun(&here);
        assert!(there.counts(Shown::read(&text).unwrap(), &SECRET, at(1)));
    }

    #[test]
    fn every_changed_byte_breaks_the_seal() {
        let sessions = Sessions::make().unwrap();
        let text = begun(&sessions);
        for place in 0..text.len() {
            for other in [b'A', b'0', b'.', b'_'] {
                let mut bytes = text.clone().into_bytes();
                if std::mem::replace(&mut bytes[place], other) == other {
                    continue;
                }
                let changed = String::from_utf8(bytes).unwrap();
                let counts = Shown::read(&changed)
                    .is_some_and(|shown| sessions.counts(shown, &SECRET, at(1)));
                assert!(!counts, "{changed}");
            }
        }
    }

    #[test]
    fn what_is_no_session_is_read_as_none() {
        let long = format!("a.1.b.{}", "c".repeat(TEXT_BYTES_MAX));
        for text in ["", "a", "a.1.b", "a.x.b.c", "a.-1.b.c", "a.1.b.c.d", "a.+1.b.c", &long] {
            assert_eq!(Shown::read(text), None, "{text}");
        }
    }

    #[test]
    fn g45_a_proof_is_of_one_session() {
        let sessions = Sessions::make().unwrap();
        let (one, other) = (begun(&sessions), begun(&sessions));
        let (one, other) = (Shown::read(&one).unwrap(), Shown::read(&other).unwrap());
        let proof = sessions.proof(one);
        assert!(sessions.is_proof(one, proof.as_bytes()));
        assert!(!sessions.is_proof(other, proof.as_bytes()));
        assert!(!sessions.is_proof(one, b"") && !sessions.is_proof(one, one.seal.as_bytes()));
    }

    #[test]
    fn what_was_ended_stays_so_and_is_forgotten_when_its_time_has_come() {
        let sessions = Sessions::make().unwrap();
        let text = begun(&sessions);
        let shown = Shown::read(&text).unwrap();
        sessions.end(shown, at(1));
        sessions.end(shown, at(2));
        assert!(!sessions.counts(shown, &SECRET, at(2)));
        let later = begun(&sessions);
        sessions.end(Shown::read(&later).unwrap(), at(1001));
        let ended = sessions.ended.lock();
        assert_eq!((ended.nonces.len(), ended.by_time.len()), (1, 1));
    }
}
