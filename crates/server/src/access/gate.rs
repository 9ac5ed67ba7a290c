//! The gate: who shows which secret, and all apps there are.
//!
//! A wrong secret, an unknown key and a disabled app look alike from outside and take the same work.
//! What an app may do stands in its record, which is taken anew at every question. Changes are on
//! disk before they count here.

mod token;
mod browser;
mod claim;
mod tally;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use parking_lot::{Mutex, RwLock};
use punctual_api::{Code, Problem};
use punctual_model::{Span, Timestamp, TopicName};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

pub(crate) use self::browser::{COOKIE_NAME, SignedIn};
pub(crate) use self::claim::ScramClaim;
use self::claim::false_salt;
use self::tally::Tally;
pub(crate) use self::tally::{AppCounts, AppIdentity};
use self::token::{bearer, split};
use crate::access::caller::{Caller, Known, Target, unauthenticated};
use crate::access::facts::Facts;
use crate::access::quota::{Cost, Meter};
use crate::access::record::{AppKey, AppRecord, NewSecret, OldSecret, SecretHash, hash};
use crate::access::scram::{ITERATIONS, Pair, ScramHash, ScramKeys};
use crate::access::session::Sessions;
use crate::access::store::{AppStore, Written};
use crate::access::{Connection, Permission};
use crate::config::AdminToken;

/// Most apps.
pub(crate) const APPS_MAX: usize = 10_000;
/// Nobody knows a secret with such a hash. An unknown key is compared with it all the same.
const NEVER: SecretHash = [0; 32];
/// How often a change begins anew because other nodes were first.
const TRIES_MAX: usize = 16;

/// The gate. Clones are handles of the same one.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    /// Whether everybody must say who they are.
    enabled: bool,
    apps: RwLock<BTreeMap<AppKey, Arc<App>>>,
    /// Held while anything is changed.
    store: Mutex<AppStore>,
    /// The administrator's token, where the configuration says it.
    chosen: RwLock<Option<AdminToken>>,
    sessions: Sessions,
    facts: Facts,
}

/// What the configuration says about who is let in.
#[derive(Debug, Default)]
pub(crate) struct Auth<'a> {
    /// Whether everybody must say who they are.
    pub(crate) enabled: bool,
    /// The administrator's token, where it is configured.
    pub(crate) admin: Option<AdminToken>,
    /// What the nodes of a cluster share, so that sessions count on all of them.
    pub(crate) nodes: Option<&'a str>,
}

/// An app at work.
pub(crate) struct App {
    record: ArcSwap<AppRecord>,
    gone: AtomicBool,
    meter: Meter,
    tally: Tally,
    connections: AtomicU64,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("enabled", &self.inner.enabled).finish_non_exhaustive()
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.load().fmt(f)
    }
}

/// Why an app was not made or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    /// There is none with that key.
    #[error("there is no such app")]
    NotFound,
    /// There is one with that key.
    #[error("there is an app with this key")]
    Exists,
    /// The built-in one stays as it is.
    #[error("{0}")]
    Reserved(&'static str),
    /// There are as many as may be.
    #[error("there are {APPS_MAX} apps already")]
    TooMany,
    /// The disk, or the store of the cluster, did not take it.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl App {
    fn new(record: AppRecord) -> Arc<Self> {
        Arc::new(Self {
            record: ArcSwap::from_pointee(record),
            gone: AtomicBool::new(false),
            meter: Meter::default(),
            tally: Tally::default(),
            connections: AtomicU64::new(0),
        })
    }

    pub(super) fn key(&self) -> AppKey {
        self.record.load().key.clone()
    }

    /// Whether its secret counts.
    pub(super) fn stands(&self) -> bool {
        self.record.load().enabled && !self.gone.load(Ordering::Acquire)
    }

    pub(super) fn answered(&self, messages: u64) {
        self.meter.answered(messages);
    }

    /// Counts one connection more, unless there are as many as may be.
    pub(super) fn sit_down(&self) -> Result<(), Problem> {
        let most = self.record.load().quotas.connections;
        let before = self.connections.fetch_add(1, Ordering::AcqRel);
        match most {
            Some(most) if before >= most => {
                self.stand_up();
                let detail = format!("the app may have {most} connections");
                Err(Problem::new(Code::QuotaExceeded, detail).after(1))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn stand_up(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    /// Lets in the apps of these files. Where everybody must say who they are, and the administrator
    /// has no token yet, one is made and written down. Blocks on the disk.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn open(
        Auth { enabled, admin: chosen, nodes }: Auth<'_>,
        (store, records): (impl Into<AppStore>, Vec<AppRecord>),
        facts: Facts,
    ) -> io::Result<(Self, FirstToken)> {
        let mut store = store.into();
        let mut apps: BTreeMap<AppKey, Arc<App>> =
            records.into_iter().map(|record| (record.key.clone(), App::new(record))).collect();
        let mut first = FirstToken::Known;
        let admin = AppKey::admin();
        let counts = |token: &str| {
            let app = apps.get(&admin).map(|app| app.record.load().secret);
            let secret = split(token).filter(|(key, _)| *key == admin.as_str());
            app.zip(secret).is_some_and(|(known, (_, secret))| known == hash(secret))
        };
        if enabled && chosen.is_none() && !store.can_make_token() {
            let text = "auth.admin_token must be set in a cluster, to the same on all nodes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if let Some(files) = store.files() {
            files.finish_token(counts)?;
            if enabled && chosen.is_none() && !apps.contains_key(&admin) {
                let secret = NewSecret::make()?;
                files.prepare_token(&secret.token(&admin))?;
                let mut record = AppRecord::new(admin.clone(), secret.hash(), (facts.now)());
                record.scram = Some(secret.scram(None)?);
                files.put(&record)?;
                files.place_token()?;
                apps.insert(admin, App::new(record));
                first = FirstToken::Made;
            }
        }
        let inner = Inner {
            enabled,
            apps: RwLock::new(apps),
            store: Mutex::new(store),
            chosen: RwLock::new(chosen),
            sessions: Self::sessions(nodes)?,
            facts,
        };
        let inner = Arc::new(inner);
        inner.store.lock().follow(Arc::downgrade(&inner));
        Ok((Self { inner }, first))
    }

    /// Whether everybody must say who they are.
    pub(crate) fn is_enabled(&self) -> bool {
        self.inner.enabled
    }

    /// Who asks, by what the request says.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`]; [`Code::QuotaExceeded`] for an app with too many connections.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Problem> {
        if !self.inner.enabled {
            return Ok(Caller::Local);
        }
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (key, secret) = match (given.next(), given.next()) {
            (Some(header), None) => bearer(header).ok_or_else(unauthenticated)?,
            _ => return Err(unauthenticated()),
        };
        let app = self.with_secret(key, secret).ok_or_else(unauthenticated)?;
        if let Some(connection) = extensions.get::<Arc<Connection>>() {
            connection.seat(&app)?;
        }
        Ok(Caller::App(Known { app, gate: self.clone() }))
    }

    /// Lets in the app of that key on that connection, if that is its secret.
    ///
    /// # Errors
    /// As [`identify`](Self::identify).
    pub(crate) fn identify_by(
        &self,
        (key, secret): (&str, &str),
        connection: &Connection,
    ) -> Result<Caller, Problem> {
        let app = self.with_secret(key, secret).ok_or_else(unauthenticated)?;
        connection.seat(&app)?;
        Ok(Caller::App(Known { app, gate: self.clone() }))
    }

    /// Somebody says to be the app of that key, and is about to prove it. Who does not exist, may not
    /// come in, or has a secret that cannot be proved gets a salt all the same, always the same one:
    /// `pepper` is known to nobody outside.
    pub(crate) fn scram(&self, key: &str, hash: ScramHash, pepper: &[u8]) -> ScramClaim {
        let now = (self.inner.facts.now)();
        let app = self.inner.apps.read().get(key).cloned();
        let chosen = self.inner.chosen.read().clone().filter(|_| key == AppKey::admin().as_str());
        let app = match (app, &chosen) {
            (None, Some(_)) => Some(self.chosen_admin()),
            (app, _) => app,
        };
        let record = app.as_ref().map(|app| app.record.load_full());
        let current = match &chosen {
            Some(chosen) => Some(chosen.scram().clone()),
            None => record.as_ref().and_then(|record| record.scram.clone()),
        };
        let old = record.as_ref().and_then(|record| record.old.clone());
        let old = old.filter(|old| now < old.until && chosen.is_none());
        let old = old.and_then(|old| old.scram);
        if app.is_some() && current.is_none() {
            tracing::warn!(app = key, "its secret was made before SCRAM: rotate it, or use PLAIN");
        }
        let known = current.as_ref().or(old.as_ref());
        let (salt, iterations) =
            known.map_or_else(|| (false_salt(key, pepper), ITERATIONS), |k| (k.salt, k.iterations));
        let pair = |keys: Option<&ScramKeys>| {
            keys.map_or_else(|| Pair::nobodys(hash), |keys| keys.pair(hash).clone())
        };
        let (current, old) = (pair(current.as_ref()), pair(old.as_ref()));
        ScramClaim { gate: self.clone(), app, hash, salt, iterations, pairs: [current, old] }
    }

    /// The app of that key, if that is its secret.
    fn with_secret(&self, key: &str, secret: &str) -> Option<Arc<App>> {
        let shown = hash(secret);
        let app = self.inner.apps.read().get(key).cloned();
        let app = match app {
            None if self.chosen(key).is_some() => Some(self.chosen_admin()),
            app => app,
        };
        let [current, old] =
            app.as_ref().map_or([None; 2], |app| self.secrets(key, &app.record.load()));
        let matches = shown.ct_eq(&current.unwrap_or(NEVER)) | shown.ct_eq(&old.unwrap_or(NEVER));
        app.filter(|app| bool::from(matches) && app.stands())
    }

    /// The hashes of the secrets that count for an app: its own, and the one before for its time.
    fn secrets(&self, key: &str, record: &AppRecord) -> [Option<SecretHash>; 2] {
        match self.chosen(key) {
            Some(chosen) => [Some(chosen), None],
            None => {
                let old = record.old.as_ref().filter(|old| self.now() < old.until);
                [Some(record.secret), old.map(|old| old.hash)]
            }
        }
    }

    fn now(&self) -> Timestamp {
        (self.inner.facts.now)()
    }

    /// The hash of the administrator's token, where the configuration says it.
    fn chosen(&self, key: &str) -> Option<SecretHash> {
        let chosen = self.inner.chosen.read();
        chosen.as_ref().filter(|_| key == AppKey::admin().as_str()).map(AdminToken::secret_hash)
    }

    /// The built-in app, for as long as only the configuration knows it; it has no other secret.
    fn chosen_admin(&self) -> Arc<App> {
        let mut apps = self.inner.apps.write();
        let made = || App::new(AppRecord::new(AppKey::admin(), NEVER, (self.inner.facts.now)()));
        Arc::clone(apps.entry(AppKey::admin()).or_insert_with(made))
    }

    /// The configuration was read anew.
    pub(crate) fn set_admin_token(&self, token: Option<&AdminToken>) {
        *self.inner.chosen.write() = token.cloned();
    }

    pub(super) fn grants(&self, app: &App, permission: Permission, target: Target<'_>) -> bool {
        let record = app.record.load();
        let covers = |grant: &super::grant::Grant| {
            grant.covers(permission, target, &*self.inner.facts.owner)
        };
        record.key.is_admin() || record.grants.iter().any(covers)
    }

    /// Takes what is sent off the app's quotas; whether what is pending is counted.
    pub(super) fn charge(&self, app: &App, cost: Cost) -> Result<bool, Problem> {
        let record = app.record.load();
        let count = || self.pending_of(app);
        app.meter.charge(&record.quotas, cost, Instant::now(), count)?;
        Ok(record.quotas.pending.is_some())
    }

    /// The same for whoever pauses afterwards, and for how long; so many of them become pending.
    pub(super) fn charge_on_credit(
        &self,
        app: &App,
        cost: Cost,
        pending: u64,
    ) -> Result<(bool, Duration), Problem> {
        let record = app.record.load();
        let count = || self.pending_of(app);
        let charge = (cost, pending);
        let pause = app.meter.charge_on_credit(&record.quotas, charge, Instant::now(), count)?;
        Ok((record.quotas.pending.is_some(), pause))
    }

    /// How long the app has to pause for what it sent on credit.
    pub(super) fn owed(app: &App) -> Duration {
        app.meter.owed(&app.record.load().quotas, Instant::now())
    }

    /// What is pending in the topics that the app may send to.
    fn pending_of(&self, app: &App) -> u64 {
        let may = |topic: &TopicName| self.grants(app, Permission::Send, Target::Topic(topic));
        let pending = (self.inner.facts.pending)();
        pending.iter().filter(|(topic, _)| may(topic)).map(|(_, count)| *count).sum()
    }

    /// The app of that key.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<AppRecord>> {
        self.inner.apps.read().get(key).map(|app| app.record.load_full())
    }

    /// How many apps there are.
    pub(crate) fn count(&self) -> usize {
        self.inner.apps.read().len()
    }

    /// Apps behind that key, in order, and whether more follow.
    pub(crate) fn list(&self, after: Option<&str>, limit: usize) -> (Vec<Arc<AppRecord>>, bool) {
        let apps = self.inner.apps.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = apps.range::<str, _>((from, Bound::Unbounded));
        let page = rest.by_ref().take(limit).map(|(_, app)| app.record.load_full()).collect();
        (page, rest.next().is_some())
    }

    /// Makes an app. Blocks on the disk.
    ///
    /// # Errors
    /// [`AppError`].
    pub(crate) fn create(
        &self,
        key: AppKey,
        fill: impl FnOnce(&mut AppRecord),
    ) -> Result<(Arc<AppRecord>, NewSecret), AppError> {
        if key.is_admin() {
            return Err(AppError::Reserved("the key admin is that of the built-in app"));
        }
        let mut store = self.inner.store.lock();
        store.refresh()?;
        let revision = store.revision(key.as_str());
        self.check_room(&key)?;
        let secret = NewSecret::make()?;
        let mut record = AppRecord::new(key, secret.hash(), (self.inner.facts.now)());
        record.scram = Some(secret.scram(None)?);
        fill(&mut record);
        match store.put(&record, revision)? {
            Written::Done => self.inner.take_in(record.clone()),
            Written::TakenIn => {}
            Written::Overtaken => return Err(AppError::Exists),
        }
        Ok((Arc::new(record), secret))
    }

    fn check_room(&self, key: &AppKey) -> Result<(), AppError> {
        let apps = self.inner.apps.read();
        match () {
            () if apps.contains_key(key) => Err(AppError::Exists),
            () if apps.len() >= APPS_MAX => Err(AppError::TooMany),
            () => Ok(()),
        }
    }

    /// Changes an app, but not the built-in one. Blocks on the disk.
    ///
    /// # Errors
    /// [`AppError`].
    pub(crate) fn change(
        &self,
        key: &str,
        change: impl Fn(&mut AppRecord),
    ) -> Result<Arc<AppRecord>, AppError> {
        let store = &mut self.inner.store.lock();
        let (record, ()) = self.rewrite(store, key, |_| {
            let mut record = AppRecord::clone(&self.changeable(key)?.record.load());
            change(&mut record);
            Ok((record, ()))
        })?;
        Ok(record)
    }

    /// Writes an app anew, from the start whenever somebody else was first. Blocks.
    fn rewrite<T>(
        &self,
        store: &mut AppStore,
        key: &str,
        write: impl Fn(&mut AppStore) -> Result<(AppRecord, T), AppError>,
    ) -> Result<(Arc<AppRecord>, T), AppError> {
        for _ in 0..TRIES_MAX {
            store.refresh()?;
            let revision = store.revision(key);
            let (record, told) = write(store)?;
            match store.put(&record, revision)? {
                Written::Done => self.inner.take_in(record.clone()),
                Written::TakenIn => {}
                Written::Overtaken => continue,
            }
            return Ok((Arc::new(record), told));
        }
        Err(overtaken())
    }

    /// Gives an app a new secret; the old one counts for some time yet, if that is wanted. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// [`AppError`].
    pub(crate) fn rotate(
        &self,
        key: &str,
        keep_old: Option<Span>,
    ) -> Result<(Arc<AppRecord>, NewSecret), AppError> {
        if self.chosen(key).is_some() {
            return Err(AppError::Reserved("the token of the administrator is configured"));
        }
        let store = &mut self.inner.store.lock();
        let (record, (secret, in_file)) = self.rewrite(store, key, |store| {
            let (record, secret) = self.rotated(key, keep_old)?;
            let mut in_file = false;
            if let Some(files) = store.files().filter(|_| record.key.is_admin())
                && files.has_token()?
            {
                // Whoever has only the file is not locked out by a crash in between.
                files.prepare_token(&secret.token(&record.key))?;
                in_file = true;
            }
            Ok((record, (secret, in_file)))
        })?;
        if let Some(files) = store.files().filter(|_| in_file)
            && let Err(error) = files.place_token()
        {
            tracing::warn!(%error, "the new token of the administrator is not in its file yet");
        }
        Ok((record, secret))
    }

    /// The app with another secret.
    fn rotated(
        &self,
        key: &str,
        keep_old: Option<Span>,
    ) -> Result<(AppRecord, NewSecret), AppError> {
        let app = self.inner.apps.read().get(key).cloned().ok_or(AppError::NotFound)?;
        let (secret, now) = (NewSecret::make()?, (self.inner.facts.now)());
        let mut record = AppRecord::clone(&app.record.load());
        let scram = secret.scram(record.scram.as_ref())?;
        let before = record.scram.replace(scram);
        record.old = keep_old.filter(|keep| *keep > Span::ZERO).map(|keep| OldSecret {
            hash: record.secret,
            scram: before,
            until: now.saturating_add(keep),
        });
        record.secret = secret.hash();
        record.rotated = Some(now);
        Ok((record, secret))
    }

    /// Removes an app. Blocks on the disk.
    ///
    /// # Errors
    /// [`AppError`].
    pub(crate) fn delete(&self, key: &str) -> Result<(), AppError> {
        let mut store = self.inner.store.lock();
        for _ in 0..TRIES_MAX {
            store.refresh()?;
            let revision = store.revision(key);
            let app = self.changeable(key)?;
            match store.remove(&app.key(), revision)? {
                Written::Done => self.inner.let_go(key),
                Written::TakenIn => {}
                Written::Overtaken => continue,
            }
            return Ok(());
        }
        Err(overtaken())
    }

    fn changeable(&self, key: &str) -> Result<Arc<App>, AppError> {
        let app = self.inner.apps.read().get(key).cloned().ok_or(AppError::NotFound)?;
        match app.key().is_admin() {
            true => Err(AppError::Reserved("the built-in app can only be given another secret")),
            false => Ok(app),
        }
    }
}

impl Inner {
    /// An app was made or changed. One that was made when there was another of its key is another
    /// app.
    pub(super) fn take_in(&self, record: AppRecord) {
        let mut apps = self.apps.write();
        if let Some(app) = apps.get(&record.key) {
            if app.record.load().created == record.created {
                app.record.store(Arc::new(record));
                return;
            }
            app.gone.store(true, Ordering::Release);
        }
        apps.insert(record.key.clone(), App::new(record));
    }

    /// An app was removed.
    pub(super) fn let_go(&self, key: &str) {
        if let Some(app) = self.apps.write().remove(key) {
            app.gone.store(true, Ordering::Release);
        }
    }
}

fn overtaken() -> AppError {
    AppError::Disk(io::Error::other("other nodes change the app all the time"))
}

/// Whether the administrator's token was made just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstToken {
    /// It stands in its file.
    Made,
    /// There was one, or there need not be any.
    Known,
}

#[cfg(test)]
mod tests;
