//! The exchange of SCRAM (RFC 5802, RFC 7677), the server's side: two messages from each.
//!
//! What is proved is proved over the very bytes that were exchanged. A client that insists on
//! binding to the channel is refused: that is not offered. Nothing here knows a secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::access::{Caller, Connection, Gate, ScramClaim, ScramHash};

/// Longest message; what clients send has a few hundred bytes.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Random bytes that this side adds to the client's number.
const NONCE_BYTES: usize = 24;

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScramError {
    /// It does not speak SCRAM as it should.
    Malformed(&'static str),
    /// It is not who it says to be, or may not come in.
    Refused(String),
}

/// After the first message of both sides.
#[derive(Debug)]
pub(crate) struct Begun {
    claim: ScramClaim,
    /// The head of the client's first message, and the rest of it.
    head: String,
    bare: String,
    nonce: String,
    server_first: String,
}

/// Answers the first message of a client; who it says to be is checked with the second.
pub(crate) fn begin(
    gate: &Gate,
    hash: ScramHash,
    message: &[u8],
    pepper: &[u8],
) -> Result<(Begun, String), ScramError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)
        .map_err(|_no_chance| ScramError::Malformed("no number can be made"))?;
    begin_with(gate, hash, message, (pepper, &STANDARD.encode(nonce)))
}

fn begin_with(
    gate: &Gate,
    hash: ScramHash,
    message: &[u8],
    (pepper, own_nonce): (&[u8], &str),
) -> Result<(Begun, String), ScramError> {
    let First { head, bare, user, nonce } = First::read(text(message)?)?;
    let claim = gate.scram(&user, hash, pepper);
    let nonce = format!("{nonce}{own_nonce}");
    let salt = STANDARD.encode(claim.salt());
    let server_first = format!("r={nonce},s={salt},i={}", claim.iterations());
    let answer = server_first.clone();
    Ok((Begun { claim, head, bare, nonce, server_first }, answer))
}

impl Begun {
    /// Checks the second message; who has come in, and the last message to it.
    pub(crate) fn finish(
        self,
        message: &[u8],
        connection: &Connection,
    ) -> Result<(Caller, String), ScramError> {
        let message = text(message)?;
        let (meant, proof) =
            message.rsplit_once(",p=").ok_or(ScramError::Malformed("the proof is missing"))?;
        let proof = STANDARD
            .decode(proof)
            .map_err(|_other| ScramError::Malformed("the proof is not in base64"))?;
        let mut parts = meant.split(',');
        let binding = parts.next().and_then(|part| part.strip_prefix("c="));
        let binding = binding.and_then(|binding| STANDARD.decode(binding).ok());
        if binding.as_deref() != Some(self.head.as_bytes()) {
            return Err(ScramError::Malformed("the channel is not the one it began with"));
        }
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        if nonce != Some(self.nonce.as_str()) {
            return Err(ScramError::Malformed("the number is not the one that was given"));
        }
        check_extensions(parts)?;
        let messages = format!("{},{},{meant}", self.bare, self.server_first);
        let (caller, answer) = self
            .claim
            .prove(messages.as_bytes(), &proof, connection)
            .map_err(|problem| ScramError::Refused(problem.detail.into_owned()))?;
        Ok((caller, format!("v={}", STANDARD.encode(answer))))
    }
}

/// The client's first message.
struct First {
    head: String,
    bare: String,
    user: String,
    nonce: String,
}

impl First {
    fn read(message: &str) -> Result<Self, ScramError> {
        let malformed = ScramError::Malformed;
        let mut parts = message.splitn(3, ',');
        match parts.next() {
            // The client cannot bind to the channel, or takes this side to be unable to.
            Some("n" | "y") => {}
            Some(flag) if flag.starts_with("p=") => {
                return Err(malformed("binding to the channel is not offered"));
            }
            _ => return Err(malformed("it does not begin as SCRAM does")),
        }
        let identity = parts.next().ok_or(malformed("it does not begin as SCRAM does"))?;
        let bare = parts.next().ok_or(malformed("it does not begin as SCRAM does"))?;
        let head = message.strip_suffix(bare).unwrap_or_default();
        let mut fields = bare.split(',');
        let user = fields.next().and_then(|field| field.strip_prefix("n="));
        let user = unescaped(user.ok_or(malformed("the name is missing"))?)?;
        if !identity.is_empty() {
            let other = identity.strip_prefix("a=").ok_or(malformed("it has no such part"))?;
            if unescaped(other)? != user {
                return Err(malformed("nobody acts for somebody else"));
            }
        }
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        let nonce = nonce.ok_or(malformed("the number is missing"))?;
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed("the number is not one"));
        }
        check_extensions(fields)?;
        Ok(Self { head: head.to_owned(), bare: bare.to_owned(), user, nonce: nonce.to_owned() })
    }
}

/// Further fields are left alone, unless they must be understood.
fn check_extensions<'a>(mut fields: impl Iterator<Item = &'a str>) -> Result<(), ScramError> {
    let must = |field: &str| field.starts_with("m=") || !field.contains('=');
    match fields.any(must) {
        true => Err(ScramError::Malformed("it asks for something that is not known")),
        false => Ok(()),
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    let short = message.len() <= MESSAGE_BYTES_MAX;
    let text = std::str::from_utf8(message).ok().filter(|_| short);
    text.filter(|text| !text.contains('\0')).ok_or(ScramError::Malformed("it is not a text"))
}

/// A name as it is, with the two characters put back that it cannot contain.
fn unescaped(name: &str) -> Result<String, ScramError> {
    let mut plain = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('=') {
        plain.push_str(before);
        let (letter, after) = match (after.strip_prefix("2C"), after.strip_prefix("3D")) {
            (Some(after), _) => (',', after),
            (_, Some(after)) => ('=', after),
            _ => return Err(ScramError::Malformed("the name is not written as it must be")),
        };
        plain.push(letter);
        rest = after;
    }
    plain.push_str(rest);
    if plain.is_empty() {
        return Err(ScramError::Malformed("the name is empty"));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_is_taken_apart() {
        let first = First::read("n,,n=a=2Cb=3Dc,r=fyko+d2lbbFgONRv9qkxdawL,ext=1").unwrap();
        assert_eq!((first.head.as_str(), first.user.as_str()), ("n,,", "a,b=c"));
        assert_eq!(first.nonce, "fyko+d2lbbFgONRv9qkxdawL");
        assert_eq!(first.bare, "n=a=2Cb=3Dc,r=fyko+d2lbbFgONRv9qkxdawL,ext=1");
        let first = First::read("y,a=user,n=user,r=x").unwrap();
        assert_eq!((first.head.as_str(), first.bare.as_str()), ("y,a=user,", "n=user,r=x"));
    }

    #[test]
    fn other_first_messages_are_refused() {
        for message in [
            "",
            "n",
            "n,",
            "n,,",
            "n=user,r=x",
            "n,,n=user",
            "n,,r=x,n=user",
            "n,,n=,r=x",
            "n,,n=user,r=",
            "n,,n=user,r=a b",
            "n,,n=us=er,r=x",
            "n,,n=us=2c,r=x",
            "n,,m=1,n=user,r=x",
            "n,,n=user,r=x,m=1",
            "n,,n=user,r=x,junk",
            "n,a=other,n=user,r=x",
            "n,other,n=user,r=x",
            "p=tls-unique,,n=user,r=x",
            "p=tls-exporter,,n=user,r=x",
            "x,,n=user,r=x",
        ] {
            assert!(First::read(message).is_err(), "{message}");
        }
        assert!(text(b"n,,n=\xff,r=x").is_err());
        assert!(text(b"n,,n=a\0b,r=x").is_err());
        assert!(text(&[b'x'; MESSAGE_BYTES_MAX + 1]).is_err());
    }
}
