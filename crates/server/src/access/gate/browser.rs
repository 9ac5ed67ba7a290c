//! Somebody at a browser: signing in and out, and requests that a session is shown with.

use std::io;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE};
use http::{Extensions, HeaderMap, Method};
use punctual_api::{Code, Problem};
use punctual_model::Timestamp;

use super::{App, Gate, split};
use crate::access::Connection;
use crate::access::caller::{Caller, Known, unauthenticated};
use crate::access::record::{AppRecord, hash};
use crate::access::session::{SESSION_TIME, Sessions, Shown};

/// The cookie that a session is shown in.
pub(crate) const COOKIE_NAME: &str = "punctual-session";
/// The header that the proof is shown in.
const PROOF_HEADER: &str = "x-punctual-csrf";
/// Where a browser says which page made it ask.
const SITE_HEADER: &str = "sec-fetch-site";

/// A session that counts.
pub(crate) struct SignedIn {
    /// Whose it is, as it is now.
    pub(crate) record: Arc<AppRecord>,
    /// What shows that a page of ours asks.
    pub(crate) proof: String,
    pub(crate) until: Timestamp,
}

impl Gate {
    /// Who asks, by what the request of a program or of a browser says.
    ///
    /// # Errors
    /// As [`identify`](Self::identify); [`Code::Csrf`] for a change without the proof, and
    /// [`Code::CrossOrigin`] where the browser says that a foreign page asks.
    pub(crate) fn identify_page(
        &self,
        method: &Method,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Problem> {
        let shown = cookie(headers).filter(|_| self.is_enabled());
        let Some(shown) = shown.filter(|_| !headers.contains_key(AUTHORIZATION)) else {
            return self.identify(headers, extensions);
        };
        let app = self.of_session(shown).ok_or_else(unauthenticated)?;
        self.check_proof(shown, method, headers)?;
        if let Some(connection) = extensions.get::<Arc<Connection>>() {
            connection.seat(&app)?;
        }
        Ok(Caller::App(Known { app, gate: self.clone() }))
    }

    /// Begins a session for whoever shows this token, and what the cookie is to say.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`], also where nobody has to say who they are.
    pub(crate) fn sign_in(&self, token: &str) -> Result<(String, SignedIn), Problem> {
        let shown = split(token).filter(|_| self.is_enabled());
        let (key, secret) = shown.ok_or_else(unauthenticated)?;
        let app = self.with_secret(key, secret).ok_or_else(unauthenticated)?;
        let until = self.now().saturating_add(SESSION_TIME);
        let begun = self.inner.sessions.begin(&app.key(), &hash(secret), until);
        let text = begun.map_err(|error| {
            tracing::error!(%error, "no session can be made");
            Problem::from(Code::Internal)
        })?;
        let proof = Shown::read(&text).map(|shown| self.inner.sessions.proof(shown));
        let proof = proof.ok_or(Code::Internal)?;
        Ok((text, SignedIn { record: app.record.load_full(), proof, until }))
    }

    /// The session of a request, if it has one that counts.
    pub(crate) fn signed_in(&self, headers: &HeaderMap) -> Option<SignedIn> {
        let shown = cookie(headers)?;
        let app = self.of_session(shown)?;
        let proof = self.inner.sessions.proof(shown);
        Some(SignedIn { record: app.record.load_full(), proof, until: shown.until })
    }

    /// Ends the session of a request. One that does not count is as good as ended.
    ///
    /// # Errors
    /// As for every change: without the proof.
    pub(crate) fn sign_out(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(shown) = cookie(headers).filter(|shown| self.of_session(*shown).is_some()) else {
            return Ok(());
        };
        self.check_proof(shown, method, headers)?;
        self.inner.sessions.end(shown, self.now());
        Ok(())
    }

    /// The sessions of all nodes that know this secret, or of this one alone.
    pub(super) fn sessions(secret: Option<&str>) -> io::Result<Sessions> {
        secret.map_or_else(Sessions::make, |secret| Ok(Sessions::shared(secret)))
    }

    fn of_session(&self, shown: Shown<'_>) -> Option<Arc<App>> {
        let app = self.inner.apps.read().get(shown.app).cloned()?;
        let secrets = self.secrets(shown.app, &app.record.load());
        let counts = |secret| self.inner.sessions.counts(shown, secret, self.now());
        (app.stands() && secrets.iter().flatten().any(counts)).then_some(app)
    }

    fn check_proof(
        &self,
        shown: Shown<'_>,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        // Where a browser does not say it the proof has to do.
        let site = headers.get(SITE_HEADER).map(http::HeaderValue::as_bytes);
        if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
            return Err(Code::CrossOrigin.into());
        }
        let proof = headers.get(PROOF_HEADER).map_or(&[][..], http::HeaderValue::as_bytes);
        match method.is_safe() || self.inner.sessions.is_proof(shown, proof) {
            true => Ok(()),
            false => Err(Code::Csrf.into()),
        }
    }
}

/// The session that the cookies of a request show; two of them are none.
fn cookie(headers: &HeaderMap) -> Option<Shown<'_>> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut ours = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE_NAME);
    let (_, text) = ours.next()?;
    Shown::read(text).filter(|_| ours.next().is_none())
}
