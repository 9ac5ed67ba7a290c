//! Signs requests in the form of Standard Webhooks, so that an endpoint can tell ours from others'.
//!
//! The secret is never written anywhere but into the signature.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use punctual_model::Timestamp;
use sha2::Sha256;

/// Before a secret that is written in base 64.
const ENCODED_PREFIX: &str = "whsec_";
/// Longest secret, in characters.
const SECRET_CHARS_MAX: usize = 512;

/// Reads base 64 with or without the padding at its end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a text cannot be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {SECRET_CHARS_MAX} characters")]
    TooLong,
    #[error("what follows whsec_ is not base 64")]
    NotBase64,
}

/// The key of one group.
#[derive(Clone)]
pub(crate) struct Signer {
    key: Hmac<Sha256>,
}

impl Signer {
    /// The key that `secret` stands for: its bytes, or, after `whsec_`, what it encodes.
    pub(crate) fn new(secret: &str) -> Result<Self, SecretError> {
        if secret.len() > SECRET_CHARS_MAX {
            return Err(SecretError::TooLong);
        }
        let bytes = match secret.strip_prefix(ENCODED_PREFIX) {
            Some(encoded) => {
                LENIENT.decode(encoded).map_err(|_not_base64| SecretError::NotBase64)?
            }
            None => secret.as_bytes().to_vec(),
        };
        if bytes.is_empty() {
            return Err(SecretError::Empty);
        }
        let key = Hmac::new_from_slice(&bytes).expect("a key may have any length");
        Ok(Self { key })
    }

    /// The value of `webhook-signature` for one request.
    pub(crate) fn sign(&self, id: &str, time: Timestamp, body: &[u8]) -> String {
        let mut mac = self.key.clone();
        mac.update(format!("{id}.{}.", seconds(time)).as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// A secret of the configuration, which nobody gets to see.
#[derive(Clone)]
pub struct Secret(Signer);

impl Secret {
    /// The secret, if there is one.
    pub(crate) fn read(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        Signer::new(text).map(|signer| Some(Self(signer))).map_err(|error| error.to_string())
    }

    /// What it signs with.
    pub(crate) fn signer(&self) -> Signer {
        self.0.clone()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A point in time as `webhook-timestamp` wants it.
pub(crate) fn seconds(time: Timestamp) -> u64 {
    time.as_millis() / 1000
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks libraries.
    #[test]
    fn the_known_example_is_signed_alike() {
        let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let time = Timestamp::from_millis(1_614_265_330_999).unwrap();
        let signature =
            signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_plain_secret_is_its_bytes() {
        let time = Timestamp::MIN;
        let plain = Signer::new("hello").unwrap().sign("a", time, b"b");
        assert_eq!(plain, Signer::new("whsec_aGVsbG8=").unwrap().sign("a", time, b"b"));
        assert_eq!(plain, Signer::new("whsec_aGVsbG8").unwrap().sign("a", time, b"b"));
        assert_ne!(plain, Signer::new("hellp").unwrap().sign("a", time, b"b"));
    }

    #[test]
    fn illegal_secrets_are_refused_and_none_is_shown() {
        assert_eq!(Signer::new("").unwrap_err(), SecretError::Empty);
        assert_eq!(Signer::new("whsec_").unwrap_err(), SecretError::Empty);
        assert_eq!(Signer::new("whsec_!").unwrap_err(), SecretError::NotBase64);
        assert_eq!(Signer::new(&"x".repeat(513)).unwrap_err(), SecretError::TooLong);
        assert_eq!(format!("{:?}", Signer::new("hello").unwrap()), "Signer");
    }
}
