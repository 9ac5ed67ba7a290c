//! Who a client is: the choice of a mechanism, and the exchange that follows.
//!
//! Clients are apps: their keys are the names, their secrets the passwords. With PLAIN the secret is
//! shown, with SCRAM it is proved; either way an unknown key, a wrong secret and a disabled app look
//! alike. Whoever fails is told so and the connection ends. Older clients send what belongs to the
//! mechanism without a head of ours around it; from the choice in its first version on, until they
//! are in, every frame is taken so.

use bytes::{BufMut as _, Bytes, BytesMut};
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::sasl_authenticate::{
    SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use punctual_kafka_wire::messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use tracing::{debug, info};

use crate::access::{Caller, ScramHash};
use crate::kafka::call::Call;
use crate::kafka::reply::{Answering, Reply};
use crate::kafka::scram::{self, ScramError};

/// Longest message of PLAIN.
const PLAIN_BYTES_MAX: usize = 1024;

/// What a client can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(ScramHash),
}

impl Mechanism {
    const ALL: [Self; 3] =
        [Self::Plain, Self::Scram(ScramHash::Sha256), Self::Scram(ScramHash::Sha512)];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(ScramHash::Sha256) => "SCRAM-SHA-256",
            Self::Scram(ScramHash::Sha512) => "SCRAM-SHA-512",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}

/// How far a client has come.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// It has not chosen.
    #[default]
    Nothing,
    /// It has chosen; and whether it sends what follows without a head.
    Chosen(Mechanism, bool),
    /// It has sent its first message of SCRAM.
    Begun(Box<scram::Begun>, bool),
}

impl Stage {
    /// Whether the next frame has no head.
    pub(crate) const fn is_bare(&self) -> bool {
        matches!(self, Self::Chosen(_, true) | Self::Begun(_, true))
    }
}

/// A step of an exchange.
enum Step {
    /// The client answers next.
    Further(Bytes),
    /// It is in.
    In(Bytes),
}

/// Takes the client's choice.
pub(crate) async fn handshake(
    call: &Call,
    request: SaslHandshakeRequest,
    answering: Answering<SaslHandshakeRequest>,
) -> Reply {
    if !call.shared.shared.gate.is_enabled() {
        let error_code = ErrorCode::ILLEGAL_SASL_STATE.code();
        return answering.reply(&SaslHandshakeResponse { error_code, mechanisms: Vec::new() });
    }
    let mechanisms = Mechanism::ALL.iter().map(|one| one.name().to_owned()).collect();
    let mut response = SaslHandshakeResponse { error_code: 0, mechanisms };
    match Mechanism::named(&request.mechanism) {
        Some(mechanism) => {
            *call.connection.sasl.lock() = Stage::Chosen(mechanism, answering.version == 0);
            answering.reply(&response)
        }
        None => {
            response.error_code = ErrorCode::UNSUPPORTED_SASL_MECHANISM.code();
            answering.last(&response)
        }
    }
}

/// Takes what belongs to the mechanism.
pub(crate) async fn authenticate(
    call: &Call,
    request: SaslAuthenticateRequest,
    answering: Answering<SaslAuthenticateRequest>,
) -> Reply {
    let stage = std::mem::take(&mut *call.connection.sasl.lock());
    match step(call, stage, &request.auth_bytes) {
        Ok(Step::Further(auth_bytes) | Step::In(auth_bytes)) => {
            let response = SaslAuthenticateResponse { auth_bytes, ..Default::default() };
            answering.reply(&response)
        }
        Err(Refused { code, message }) => answering.last(&SaslAuthenticateResponse {
            error_code: code.code(),
            error_message: Some(message),
            ..SaslAuthenticateResponse::default()
        }),
    }
}

/// Takes a frame without a head, as older clients send them.
pub(crate) fn bare(call: &Call, frame: &[u8]) -> Reply {
    let stage = std::mem::take(&mut *call.connection.sasl.lock());
    match step(call, stage, frame) {
        Ok(Step::Further(answer) | Step::In(answer)) => match i32::try_from(answer.len()) {
            Ok(length) => {
                let mut sized = BytesMut::with_capacity(answer.len() + 4);
                sized.put_i32(length);
                sized.extend_from_slice(&answer);
                Reply::Bytes(sized.freeze())
            }
            Err(_too_long) => Reply::Close,
        },
        Err(_refused) => Reply::Close,
    }
}

/// Why somebody is not let in.
struct Refused {
    code: ErrorCode,
    message: String,
}

fn refused(message: impl Into<String>) -> Refused {
    Refused { code: ErrorCode::SASL_AUTHENTICATION_FAILED, message: message.into() }
}

fn step(call: &Call, stage: Stage, message: &[u8]) -> Result<Step, Refused> {
    let gate = &call.shared.shared.gate;
    let taken = match stage {
        Stage::Nothing => {
            let code = ErrorCode::ILLEGAL_SASL_STATE;
            let message = "choose a mechanism first (SaslHandshake)".to_owned();
            return Err(Refused { code, message });
        }
        Stage::Chosen(Mechanism::Plain, _) => {
            plain(call, message).map(|caller| (caller, Bytes::new()))
        }
        Stage::Chosen(Mechanism::Scram(hash), is_bare) => {
            let pepper = call.shared.cluster.as_str().as_bytes();
            match scram::begin(gate, hash, message, pepper) {
                Ok((begun, answer)) => {
                    *call.connection.sasl.lock() = Stage::Begun(Box::new(begun), is_bare);
                    return Ok(Step::Further(answer.into()));
                }
                Err(error) => Err(of_scram(error)),
            }
        }
        Stage::Begun(begun, _) => begun
            .finish(message, &call.connection.seats)
            .map(|(caller, answer)| (caller, Bytes::from(answer)))
            .map_err(of_scram),
    };
    let (caller, answer) = taken.inspect_err(|refused| {
        info!(from = %call.from, reason = refused.message, "a Kafka client was not let in");
    })?;
    // Whoever is in may show it again, but not become somebody else.
    let before = &call.caller;
    if matches!(before, Caller::App(_)) && before.name() != caller.name() {
        return Err(refused("a connection stays with the app that it began with"));
    }
    debug!(from = %call.from, app = %caller.name(), "a Kafka client was let in");
    // Who owes a pause does not get around it by coming again.
    call.connection.mute(caller.owed());
    call.connection.set_caller(caller);
    Ok(Step::In(answer))
}

fn of_scram(error: ScramError) -> Refused {
    match error {
        ScramError::Malformed(reason) => refused(format!("SCRAM: {reason}")),
        ScramError::Refused(reason) => refused(reason),
    }
}

/// Whoever shows a key and its secret: `[who]` NUL key NUL secret.
fn plain(call: &Call, message: &[u8]) -> Result<Caller, Refused> {
    let text = std::str::from_utf8(message).ok().filter(|_| message.len() <= PLAIN_BYTES_MAX);
    let mut parts = text.unwrap_or_default().split('\0');
    let given = (parts.next(), parts.next(), parts.next(), parts.next());
    let (Some(whose), Some(key), Some(secret), None) = given else {
        return Err(refused("PLAIN: it has no key and secret"));
    };
    if !whose.is_empty() && whose != key {
        return Err(refused("PLAIN: nobody acts for somebody else"));
    }
    // A whole token is taken for its secret.
    let own = secret.strip_prefix(key).and_then(|rest| rest.strip_prefix('.'));
    let gate = &call.shared.shared.gate;
    let shown = gate.identify_by((key, own.unwrap_or(secret)), &call.connection.seats);
    shown.map_err(|problem| refused(problem.detail.into_owned()))
}
