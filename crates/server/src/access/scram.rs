//! What is kept of a secret so that its owner can prove to know it without showing it (SCRAM).
//!
//! From the keys that are kept nobody gets the secret, nor can pose as its owner. A proof is checked
//! in the same time whether it is good or not, and so is one for somebody who does not exist.

use std::num::NonZeroU32;

use ring::pbkdf2;
use ring::{digest, hmac};
use subtle::{Choice, ConstantTimeEq as _};

/// Clients refuse fewer. Secrets are made by chance and long, so more would only cost time.
pub(crate) const ITERATIONS: NonZeroU32 = match NonZeroU32::new(4096) {
    Some(iterations) => iterations,
    None => NonZeroU32::MIN,
};
/// Bytes of a salt.
pub(crate) const SALT_BYTES: usize = 16;

/// A salt.
pub(crate) type Salt = [u8; SALT_BYTES];

/// Which hash function is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScramHash {
    Sha256,
    Sha512,
}

impl ScramHash {
    const fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    const fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    fn sign(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac(), key), bytes).as_ref().to_vec()
    }
}

/// The keys of one hash function.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    /// What a proof leads to.
    pub(crate) stored: Vec<u8>,
    /// What the answer is signed with.
    pub(crate) server: Vec<u8>,
}

/// What is kept of a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ScramKeys {
    pub(crate) salt: Salt,
    pub(crate) iterations: NonZeroU32,
    pub(crate) sha256: Pair,
    pub(crate) sha512: Pair,
}

impl ScramKeys {
    /// The keys of a secret.
    pub(crate) fn of(secret: &str, salt: Salt) -> Self {
        let pair = |hash| derived(hash, secret.as_bytes(), &salt, ITERATIONS);
        Self {
            salt,
            iterations: ITERATIONS,
            sha256: pair(ScramHash::Sha256),
            sha512: pair(ScramHash::Sha512),
        }
    }

    /// The same with a salt that nobody has had.
    ///
    /// # Errors
    /// When the system has no chance to give.
    pub(crate) fn make(secret: &str) -> std::io::Result<Self> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(std::io::Error::other)?;
        Ok(Self::of(secret, salt))
    }

    /// Those of that hash function.
    pub(crate) const fn pair(&self, hash: ScramHash) -> &Pair {
        match hash {
            ScramHash::Sha256 => &self.sha256,
            ScramHash::Sha512 => &self.sha512,
        }
    }
}

impl std::fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScramKeys")
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair")
    }
}

impl Pair {
    /// Nobody's: no proof leads to it.
    pub(crate) fn nobodys(hash: ScramHash) -> Self {
        Self { stored: vec![0; hash.bytes()], server: vec![0; hash.bytes()] }
    }

    /// Whether `proof` shows that somebody knows the secret and means these messages.
    pub(crate) fn proves(&self, hash: ScramHash, messages: &[u8], proof: &[u8]) -> Choice {
        let signature = hash.sign(&self.stored, messages);
        let same_length = Choice::from(u8::from(proof.len() == signature.len()));
        let key: Vec<u8> = signature.iter().zip(proof).map(|(a, b)| a ^ b).collect();
        hash.digest(&key).ct_eq(&self.stored) & same_length
    }

    /// Shows that whoever answers knows the keys.
    pub(crate) fn answer(&self, hash: ScramHash, messages: &[u8]) -> Vec<u8> {
        hash.sign(&self.server, messages)
    }
}

fn derived(hash: ScramHash, secret: &[u8], salt: &[u8], iterations: NonZeroU32) -> Pair {
    let mut salted = vec![0; hash.bytes()];
    pbkdf2::derive(hash.pbkdf2(), iterations, salt, secret, &mut salted);
    let client = hash.sign(&salted, b"Client Key");
    Pair { stored: hash.digest(&client), server: hash.sign(&salted, b"Server Key") }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_published_example_holds() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let pair = derived(ScramHash::Sha256, b"pencil", &salt, ITERATIONS);
        let messages = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        assert!(bool::from(pair.proves(ScramHash::Sha256, messages.as_bytes(), &proof)));
        let answer = pair.answer(ScramHash::Sha256, messages.as_bytes());
        assert_eq!(STANDARD.encode(answer), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        for place in 0..proof.len() {
            let mut wrong = proof.clone();
            wrong[place] ^= 1;
            assert!(!bool::from(pair.proves(ScramHash::Sha256, messages.as_bytes(), &wrong)));
        }
        for wrong in [&proof[..31], &[proof.clone(), vec![0]].concat(), b""] {
            assert!(!bool::from(pair.proves(ScramHash::Sha256, messages.as_bytes(), wrong)));
        }
        let other = pair.proves(ScramHash::Sha256, &messages.as_bytes()[1..], &proof);
        assert!(!bool::from(other), "it means those messages and no others");
    }

    #[test]
    fn nobodys_keys_are_proved_by_nothing() {
        for hash in [ScramHash::Sha256, ScramHash::Sha512] {
            let nobodys = Pair::nobodys(hash);
            for proof in [vec![0; hash.bytes()], hash.sign(&nobodys.stored, b"m"), Vec::new()] {
                assert!(!bool::from(nobodys.proves(hash, b"m", &proof)));
            }
        }
    }

    #[test]
    fn g47_keys_are_not_printed() {
        let keys = ScramKeys::make("secret").unwrap();
        assert_eq!(format!("{keys:?}"), "ScramKeys");
        assert_ne!(ScramKeys::make("secret").unwrap().salt, keys.salt);
    }
}
