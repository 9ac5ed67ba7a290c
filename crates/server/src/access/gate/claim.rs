//! Somebody who says to be an app and proves it without showing its secret.

use std::num::NonZeroU32;
use std::sync::Arc;

use punctual_api::Problem;
use sha2::{Digest as _, Sha256};

use super::{App, Gate};
use crate::access::Connection;
use crate::access::caller::{Caller, Known, unauthenticated};
use crate::access::scram::{Pair, SALT_BYTES, Salt, ScramHash};

/// Somebody who says to be an app.
#[derive(Debug)]
pub(crate) struct ScramClaim {
    pub(super) gate: Gate,
    pub(super) app: Option<Arc<App>>,
    pub(super) hash: ScramHash,
    pub(super) salt: Salt,
    pub(super) iterations: NonZeroU32,
    /// Of its secret, and of the one before while that counts.
    pub(super) pairs: [Pair; 2],
}

impl ScramClaim {
    /// The salt that the proof is made with.
    pub(crate) const fn salt(&self) -> &Salt {
        &self.salt
    }

    /// How often the secret is hashed for it.
    pub(crate) const fn iterations(&self) -> NonZeroU32 {
        self.iterations
    }

    /// Lets the app in on that connection, if it proves to know its secret and to mean these
    /// messages; with what shows the app that this side knows it too.
    ///
    /// # Errors
    /// As [`Gate::identify`].
    pub(crate) fn prove(
        self,
        messages: &[u8],
        proof: &[u8],
        connection: &Connection,
    ) -> Result<(Caller, Vec<u8>), Problem> {
        let [current, old] = &self.pairs;
        let by_current = current.proves(self.hash, messages, proof);
        let by_old = old.proves(self.hash, messages, proof);
        let app = self.app.filter(|app| bool::from(by_current | by_old) && app.stands());
        let app = app.ok_or_else(unauthenticated)?;
        connection.seat(&app)?;
        let pair = if bool::from(by_current) { current } else { old };
        let answer = pair.answer(self.hash, messages);
        Ok((Caller::App(Known { app, gate: self.gate }), answer))
    }
}

/// The salt of somebody who does not exist: the same every time, and not to be told from others.
pub(super) fn false_salt(key: &str, pepper: &[u8]) -> Salt {
    let mut hasher = Sha256::new();
    hasher.update(pepper);
    hasher.update(key);
    let digest: [u8; 32] = hasher.finalize().into();
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&digest[..SALT_BYTES]);
    salt
}
