//! The client's side of SCRAM, written anew from its description.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

#[derive(Clone, Copy)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes).as_ref().to_vec()
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    fn salted(self, secret: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        let (algorithm, length) = match self {
            Self::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, 32),
            Self::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, 64),
        };
        let mut salted = vec![0; length];
        let iterations = iterations.try_into().expect("at least one");
        pbkdf2::derive(algorithm, iterations, salt, secret.as_bytes(), &mut salted);
        salted
    }
}

/// One exchange.
pub(crate) struct Scram {
    hash: Hash,
    secret: String,
    bare: String,
    nonce: &'static str,
    expected: Vec<u8>,
}

impl Scram {
    pub(crate) fn new(hash: Hash, key: &str, secret: &str) -> Self {
        let nonce = "fyko+d2lbbFgONRv9qkxdawL";
        let bare = format!("n={key},r={nonce}");
        Self { hash, secret: secret.to_owned(), bare, nonce, expected: Vec::new() }
    }

    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    pub(crate) fn second(&mut self, asked: &[u8]) -> String {
        let asked = std::str::from_utf8(asked).expect("a text");
        let field = |name: &str| {
            let found = asked.split(',').find_map(|part| part.strip_prefix(name));
            found.unwrap_or_else(|| panic!("{name} in {asked}"))
        };
        let nonce = field("r=");
        assert!(nonce.starts_with(self.nonce) && nonce.len() > self.nonce.len() + 16);
        let salt = STANDARD.decode(field("s=")).expect("base64");
        let iterations = field("i=").parse().expect("a number");
        let salted = self.hash.salted(&self.secret, &salt, iterations);
        let meant = format!("c=biws,r={nonce}");
        let messages = format!("{},{asked},{meant}", self.bare);
        let key = self.hash.hmac(&salted, b"Client Key");
        let signature = self.hash.hmac(&self.hash.digest(&key), messages.as_bytes());
        let proof: Vec<u8> = key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server = self.hash.hmac(&salted, b"Server Key");
        self.expected = self.hash.hmac(&server, messages.as_bytes());
        format!("{meant},p={}", STANDARD.encode(proof))
    }

    /// The server must know the secret too.
    pub(crate) fn check(&self, last: &[u8]) {
        let expected = format!("v={}", STANDARD.encode(&self.expected));
        assert_eq!(std::str::from_utf8(last), Ok(expected.as_str()));
    }
}
