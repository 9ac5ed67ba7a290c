//! What is kept of an app, and how it is written down: one line of JSON and its checksum.
//!
//! Of a secret only the hash is kept. A file that was cut off or altered is told apart from every
//! whole one, so no right is ever lost or won by damage.

use std::fmt;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use punctual_model::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::access::Permission;
use crate::access::grant::{Grant, Pattern};
use crate::access::quota::Quotas;
use crate::access::scram::{Pair, SALT_BYTES, ScramKeys};

/// The key of the built-in app, which may do everything.
pub(crate) const ADMIN: &str = "admin";
/// Longest key.
pub(crate) const KEY_CHARS_MAX: usize = 64;
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// The form that is written here.
const FORM: u32 = 1;

/// SHA-256 of a secret.
pub(crate) type SecretHash = [u8; 32];

/// The key of an app: `[A-Za-z0-9_-]{1,64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AppKey(Arc<str>);

impl AppKey {
    /// The key, if it is a legal one.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let legal = (1..=KEY_CHARS_MAX).contains(&text.len()) && text.bytes().all(plain);
        legal.then(|| Self(text.into()))
    }

    /// That of the built-in app.
    pub(crate) fn admin() -> Self {
        Self(ADMIN.into())
    }

    /// The key as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, to be kept.
    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// Whether it is that of the built-in app.
    pub(crate) fn is_admin(&self) -> bool {
        &*self.0 == ADMIN
    }
}

impl fmt::Display for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl std::borrow::Borrow<str> for AppKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A secret that was just made. Whoever gets it shows it once.
pub(crate) struct NewSecret(String);

impl NewSecret {
    /// A secret that nobody can guess.
    ///
    /// # Errors
    /// When the system has no chance to give.
    pub(crate) fn make() -> std::io::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    pub(crate) fn hash(&self) -> SecretHash {
        hash(&self.0)
    }

    /// What is kept for those who prove to know it: with the salt of the secret before, so that both
    /// can be proved while both count.
    ///
    /// # Errors
    /// When the system has no chance to give.
    pub(crate) fn scram(&self, before: Option<&ScramKeys>) -> std::io::Result<ScramKeys> {
        match before {
            Some(before) => Ok(ScramKeys::of(&self.0, before.salt)),
            None => ScramKeys::make(&self.0),
        }
    }

    /// The secret itself.
    pub(crate) fn reveal(self) -> String {
        self.0
    }

    /// What the app says to be let in.
    pub(crate) fn token(&self, key: &AppKey) -> String {
        format!("{key}.{}", self.0)
    }
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewSecret")
    }
}

/// The hash by which a secret is known.
pub(crate) fn hash(secret: &str) -> SecretHash {
    Sha256::digest(secret).into()
}

/// A secret that counts for some time yet.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OldSecret {
    pub(crate) hash: SecretHash,
    pub(crate) scram: Option<ScramKeys>,
    pub(crate) until: Timestamp,
}

/// What is kept of an app.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AppRecord {
    pub(crate) key: AppKey,
    pub(crate) secret: SecretHash,
    /// What is kept of it for those who prove to know it; none for one that was made before that was.
    pub(crate) scram: Option<ScramKeys>,
    /// The secret before, while it counts.
    pub(crate) old: Option<OldSecret>,
    /// Whether its secret counts.
    pub(crate) enabled: bool,
    pub(crate) grants: Vec<Grant>,
    pub(crate) quotas: Quotas,
    pub(crate) created: Timestamp,
    /// When its secret was changed last.
    pub(crate) rotated: Option<Timestamp>,
}

impl AppRecord {
    /// An app that may do nothing yet.
    pub(crate) fn new(key: AppKey, secret: SecretHash, now: Timestamp) -> Self {
        Self {
            key,
            secret,
            scram: None,
            old: None,
            enabled: true,
            grants: Vec::new(),
            quotas: Quotas::default(),
            created: now,
            rotated: None,
        }
    }
}

impl fmt::Debug for AppRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppRecord")
            .field("key", &self.key)
            .field("enabled", &self.enabled)
            .field("grants", &self.grants)
            .field("quotas", &self.quotas)
            .finish_non_exhaustive()
    }
}

/// Why a file is not that of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// It was cut off or altered.
    #[error("it is damaged")]
    Damaged,
    /// It was written by a newer version.
    #[error("it was written by a newer version")]
    Newer,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    form: u32,
    key: String,
    secret_sha256: String,
    #[serde(default)]
    scram: Option<WrittenScram>,
    old: Option<WrittenOld>,
    enabled: bool,
    grants: Vec<WrittenGrant>,
    messages_per_second: Option<u64>,
    bytes_per_second: Option<u64>,
    pending: Option<u64>,
    connections: Option<u64>,
    created_ms: u64,
    rotated_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct WrittenOld {
    secret_sha256: String,
    #[serde(default)]
    scram: Option<WrittenScram>,
    until_ms: u64,
}

/// All bytes in base64.
#[derive(Serialize, Deserialize)]
struct WrittenScram {
    salt: String,
    iterations: NonZeroU32,
    stored_sha256: String,
    server_sha256: String,
    stored_sha512: String,
    server_sha512: String,
}

#[derive(Serialize, Deserialize)]
struct WrittenGrant {
    topics: String,
    groups: Option<String>,
    verbs: Vec<String>,
}

/// Only the form, which every version can read.
#[derive(Deserialize)]
struct Form {
    form: u32,
}

/// The file of an app.
pub(crate) fn encode(record: &AppRecord) -> Vec<u8> {
    let written = Written {
        form: FORM,
        key: record.key.to_string(),
        secret_sha256: hex(&record.secret),
        scram: record.scram.as_ref().map(write_scram),
        old: record.old.as_ref().map(|old| WrittenOld {
            secret_sha256: hex(&old.hash),
            scram: old.scram.as_ref().map(write_scram),
            until_ms: old.until.as_millis(),
        }),
        enabled: record.enabled,
        grants: record.grants.iter().map(write_grant).collect(),
        messages_per_second: record.quotas.messages_per_second,
        bytes_per_second: record.quotas.bytes_per_second,
        pending: record.quotas.pending,
        connections: record.quotas.connections,
        created_ms: record.created.as_millis(),
        rotated_ms: record.rotated.map(Timestamp::as_millis),
    };
    let mut bytes = serde_json::to_vec(&written).expect("plain texts and numbers");
    let sum = hex(&Sha256::digest(&bytes).into());
    bytes.push(b'\n');
    bytes.extend_from_slice(sum.as_bytes());
    bytes.push(b'\n');
    bytes
}

fn write_scram(keys: &ScramKeys) -> WrittenScram {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    WrittenScram {
        salt: text(&keys.salt),
        iterations: keys.iterations,
        stored_sha256: text(&keys.sha256.stored),
        server_sha256: text(&keys.sha256.server),
        stored_sha512: text(&keys.sha512.stored),
        server_sha512: text(&keys.sha512.server),
    }
}

fn read_scram(written: &WrittenScram) -> Option<ScramKeys> {
    let bytes = |text: &str, length: usize| {
        URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() == length)
    };
    Some(ScramKeys {
        salt: bytes(&written.salt, SALT_BYTES)?.try_into().ok()?,
        iterations: written.iterations,
        sha256: Pair {
            stored: bytes(&written.stored_sha256, 32)?,
            server: bytes(&written.server_sha256, 32)?,
        },
        sha512: Pair {
            stored: bytes(&written.stored_sha512, 64)?,
            server: bytes(&written.server_sha512, 64)?,
        },
    })
}

/// What is not there is `Some(None)`; `None` for what is not what was written.
fn read_some_scram(written: Option<&WrittenScram>) -> Option<Option<ScramKeys>> {
    match written {
        None => Some(None),
        Some(written) => read_scram(written).map(Some),
    }
}

fn write_grant(grant: &Grant) -> WrittenGrant {
    WrittenGrant {
        topics: grant.topics.to_string(),
        groups: grant.groups.as_ref().map(Pattern::to_string),
        verbs: grant.verbs.iter().map(|verb| verb.verb().to_owned()).collect(),
    }
}

/// What the file of an app says.
///
/// # Errors
/// [`RecordError`] for everything that is not exactly what was written.
pub(crate) fn decode(bytes: &[u8]) -> Result<AppRecord, RecordError> {
    let text = std::str::from_utf8(bytes).map_err(|_other| RecordError::Damaged)?;
    let (line, sum) = text.split_once('\n').ok_or(RecordError::Damaged)?;
    let sum = sum.strip_suffix('\n').ok_or(RecordError::Damaged)?;
    if sum != hex(&Sha256::digest(line).into()) {
        return Err(RecordError::Damaged);
    }
    let Form { form } = serde_json::from_str(line).map_err(|_other| RecordError::Damaged)?;
    if form > FORM {
        return Err(RecordError::Newer);
    }
    let written = serde_json::from_str(line).map_err(|_other| RecordError::Damaged)?;
    read(written).ok_or(RecordError::Damaged)
}

fn read(written: Written) -> Option<AppRecord> {
    let old = match written.old {
        None => None,
        Some(old) => Some(OldSecret {
            hash: unhex(&old.secret_sha256)?,
            scram: read_some_scram(old.scram.as_ref())?,
            until: Timestamp::from_millis(old.until_ms)?,
        }),
    };
    let rotated = match written.rotated_ms {
        None => None,
        Some(millis) => Some(Timestamp::from_millis(millis)?),
    };
    Some(AppRecord {
        key: AppKey::new(&written.key)?,
        secret: unhex(&written.secret_sha256)?,
        scram: read_some_scram(written.scram.as_ref())?,
        old,
        enabled: written.enabled,
        grants: written.grants.iter().map(read_grant).collect::<Option<_>>()?,
        quotas: Quotas {
            messages_per_second: written.messages_per_second,
            bytes_per_second: written.bytes_per_second,
            pending: written.pending,
            connections: written.connections,
        },
        created: Timestamp::from_millis(written.created_ms)?,
        rotated,
    })
}

fn read_grant(written: &WrittenGrant) -> Option<Grant> {
    let groups = match &written.groups {
        None => None,
        Some(groups) => Some(Pattern::read(groups)?),
    };
    let verbs =
        written.verbs.iter().map(|verb| Permission::of_verb(verb)).collect::<Option<_>>()?;
    Some(Grant { topics: Pattern::read(&written.topics)?, groups, verbs })
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        let plain = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(pair, 16).ok().filter(|_| plain)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AppRecord {
        AppRecord {
            scram: Some(ScramKeys::of("x", [5; SALT_BYTES])),
            old: Some(OldSecret {
                hash: [7; 32],
                scram: None,
                until: Timestamp::from_millis(99).unwrap(),
            }),
            grants: vec![Grant {
                topics: Pattern::read("orders.*").unwrap(),
                groups: Pattern::read("g"),
                verbs: Permission::GRANTED.to_vec(),
            }],
            quotas: Quotas { pending: Some(5), ..Quotas::default() },
            rotated: Timestamp::from_millis(5),
            ..AppRecord::new(AppKey::new("orders").unwrap(), hash("x"), Timestamp::MIN)
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let record = record();
        assert_eq!(decode(&encode(&record)), Ok(record.clone()));
        let old = OldSecret { scram: record.scram.clone(), ..record.old.clone().unwrap() };
        let both = AppRecord { old: Some(old), scram: None, ..record.clone() };
        assert_eq!(decode(&encode(&both)), Ok(both));
        let plain = AppRecord { old: None, enabled: false, rotated: None, ..record };
        assert_eq!(decode(&encode(&plain)), Ok(plain));
    }

    #[test]
    fn every_other_file_is_damaged() {
        let whole = encode(&record());
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), Err(RecordError::Damaged), "cut at {end}");
        }
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut altered = whole.clone();
                altered[place] ^= 1 << bit;
                assert_eq!(decode(&altered), Err(RecordError::Damaged), "bit {bit} of {place}");
            }
        }
        let mut longer = whole;
        longer.push(b'\n');
        assert_eq!(decode(&longer), Err(RecordError::Damaged));
        assert_eq!(decode(&[0; 4096]), Err(RecordError::Damaged));
    }

    #[test]
    fn a_record_from_before_there_was_scram_is_read() {
        let older = AppRecord { scram: None, ..record() };
        let text = String::from_utf8(encode(&older)).unwrap();
        let (line, _) = text.split_once('\n').unwrap();
        let line = line.replace(r#""scram":null,"#, "");
        assert!(!line.contains("scram"), "{line}");
        let file = format!("{line}\n{}\n", hex(&Sha256::digest(&line).into()));
        assert_eq!(decode(file.as_bytes()), Ok(older));
    }

    #[test]
    fn a_newer_form_is_not_taken_for_damage() {
        let line = r#"{"form":2,"anything":[]}"#;
        let file = format!("{line}\n{}\n", hex(&Sha256::digest(line).into()));
        assert_eq!(decode(file.as_bytes()), Err(RecordError::Newer));
    }

    #[test]
    fn keys_are_short_and_plain() {
        let long = "x".repeat(KEY_CHARS_MAX + 1);
        for text in ["", ".", "a.b", "a b", "a/b", "../x", "ä", "*", "a\n", &long] {
            assert_eq!(AppKey::new(text), None, "{text:?}");
        }
        for text in ["a", "orders-service", "A_1", "admin", &long[1..]] {
            assert_eq!(AppKey::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn g47_secrets_are_long_differ_and_are_never_printed() {
        let secrets: Vec<NewSecret> = (0..100).map(|_| NewSecret::make().unwrap()).collect();
        assert!(secrets.iter().all(|secret| secret.0.len() == 43 && !secret.0.contains('.')));
        let mut hashes: Vec<SecretHash> = secrets.iter().map(NewSecret::hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 100);
        assert_eq!(format!("{:?}", secrets[0]), "NewSecret");
        let shown = format!("{:?}", record());
        assert!(!shown.contains(&hex(&hash("x"))) && !shown.contains("45"), "{shown}");
    }
}
