//! Whether callers must say who they are, and the token that the administrator chose.
//!
//! Nobody gets to see the token: it is kept as a hash only, and its `Debug` shows nothing.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::access::ScramKeys;

/// Before the secret of the built-in app.
const PREFIX: &str = "admin.";
/// Shortest and longest secret that may be chosen.
const SECRET_CHARS: std::ops::RangeInclusive<usize> = 16..=256;

/// Who must say who they are.
#[derive(Clone, Debug, Default)]
pub struct AuthConfig {
    /// Whether everybody must.
    pub enabled: bool,
    /// What the administrator says; without it one is made at the first start.
    pub admin_token: Option<AdminToken>,
}

/// The token that an administrator chose.
#[derive(Clone)]
pub struct AdminToken {
    secret_hash: [u8; 32],
    scram: Arc<ScramKeys>,
}

impl PartialEq for AdminToken {
    fn eq(&self, other: &Self) -> bool {
        self.secret_hash == other.secret_hash
    }
}

impl Eq for AdminToken {}

impl AdminToken {
    /// The token, if there is one.
    pub(crate) fn read(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let secret = text.strip_prefix(PREFIX).unwrap_or_default();
        let plain = secret.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain || !SECRET_CHARS.contains(&secret.len()) {
            let (least, most) = (SECRET_CHARS.start(), SECRET_CHARS.end());
            return Err(format!(
                "it is {PREFIX} and {least} to {most} visible characters without spaces"
            ));
        }
        let scram = ScramKeys::make(secret).map_err(|error| format!("no salt: {error}"))?;
        Ok(Some(Self { secret_hash: Sha256::digest(secret).into(), scram: Arc::new(scram) }))
    }

    /// What is kept of it for those who prove to know it.
    pub(crate) fn scram(&self) -> &ScramKeys {
        &self.scram
    }

    /// The hash of its secret.
    pub(crate) const fn secret_hash(&self) -> [u8; 32] {
        self.secret_hash
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_app_and_is_not_guessed() {
        assert_eq!(AdminToken::read(""), Ok(None));
        let token = AdminToken::read("admin.0123456789abcdef").unwrap().unwrap();
        assert_eq!(format!("{token:?}"), "AdminToken");
        for text in
            ["admin.", "admin.short", "0123456789abcdef", "admin.0123456789abcde f", "root.x"]
        {
            let refused = AdminToken::read(text).unwrap_err();
            assert!(refused.contains("visible"), "{text}: {refused}");
        }
        assert!(AdminToken::read(&format!("admin.{}", "x".repeat(257))).is_err());
    }
}
