//! Apps: make, look at, change, rotate, disable, remove.
//!
//! A secret leaves in the answer to the call that made it, and nowhere else.

use std::sync::Arc;

use http::StatusCode;
use punctual_api::answer::Outcome;
use punctual_api::app::{
    AppChange, AppLimits, AppList, AppTotalsView, AppView, IssuedView, NewApp, PermissionView,
    Quotas as WrittenQuotas, WrittenPermission, read_rotation,
};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_model::Span;
use punctual_model::limits::JSON_DEPTH_MAX;

use crate::access::{
    AppError, AppIdentity, AppKey, AppRecord, Gate, Grant, NewSecret, Pattern, Permission, Quotas,
};
use crate::http::audit::{self, Asker};
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::page::take_limit;
use crate::http::problem::of_broken_off;
use crate::http::reply::{Reply, json, large_json};
use crate::http::shared::Shared;
use crate::http::time;

/// Largest request about an app.
const APP_BYTES_MAX: usize = 128 << 10;
/// Most permissions of an app.
pub(crate) const PERMISSIONS_MAX: usize = 64;
const LIMITS: AppLimits = AppLimits {
    depth: JSON_DEPTH_MAX,
    permissions: PERMISSIONS_MAX,
    verbs: Permission::GRANTED.len(),
};
/// Longest time for which an old secret may count.
pub(crate) const KEEP_OLD_MAX: Span = Span::from_days(30);

/// `POST /v1/apps`
pub(crate) async fn create(call: Call) -> Result<Reply, Problem> {
    let asker = call.asker();
    let (shared, held) = take_json(call, APP_BYTES_MAX).await?;
    let new = NewApp::read(&held.bytes, LIMITS)?;
    let key = AppKey::new(&new.key).ok_or_else(|| {
        let detail = "a key has 1 to 64 letters, digits, - and _";
        Problem::new(Code::InvalidAppKey, detail)
    })?;
    let (grants, quotas) = (grants(&new.permissions)?, quotas(new.quotas)?);
    drop(held);
    if shared.gate.get(key.as_str()).is_some() {
        return Err(Code::AppExists.into());
    }
    let details = told(&key, Some(&grants), Some(quotas));
    let work = blocking(&shared, move |gate| {
        gate.create(key, |record| {
            record.grants = grants;
            record.quotas = quotas;
        })
    });
    let (record, secret) =
        audit::taken_down(&shared, asker, ("app_create", None), details, work).await?;
    Ok(issued(&shared, StatusCode::CREATED, &record, secret))
}

/// `GET /v1/apps`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let cursor = parameters.take("cursor")?;
    let after = cursor.map(|key| AppKey::new(&key).ok_or(Code::InvalidCursor)).transpose()?;
    parameters.end()?;
    let (page, more) = call.shared.gate.list(after.as_ref().map(AppKey::as_str), limit);
    let next = page.last().filter(|_| more).map(|last| last.key.to_string());
    let apps = page.iter().map(|record| view(&call.shared, record)).collect();
    large_json(&call.shared, &AppList { apps, next })
}

/// `GET /v1/apps/{app}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let record = named(&call)?;
    Ok(json(StatusCode::OK, &view(&call.shared, &record)))
}

/// `PATCH /v1/apps/{app}`
pub(crate) async fn patch(call: Call) -> Result<Reply, Problem> {
    let (record, asker) = (named(&call)?, call.asker());
    let (shared, held) = take_json(call, APP_BYTES_MAX).await?;
    let change = AppChange::read(&held.bytes, LIMITS)?;
    let grants = change.permissions.as_deref().map(grants).transpose()?;
    let quotas = change.quotas.map(quotas).transpose()?;
    drop(held);
    let details = told(&record.key, grants.as_deref(), quotas);
    changed(&shared, (asker, "app_patch"), &record, details, move |record| {
        if let Some(grants) = &grants {
            record.grants.clone_from(grants);
        }
        record.quotas = quotas.unwrap_or(record.quotas);
    })
    .await
}

/// `POST /v1/apps/{app}/disable`
pub(crate) async fn disable(call: Call) -> Result<Reply, Problem> {
    set_enabled(call, "app_disable", false).await
}

/// `POST /v1/apps/{app}/enable`
pub(crate) async fn enable(call: Call) -> Result<Reply, Problem> {
    set_enabled(call, "app_enable", true).await
}

async fn set_enabled(call: Call, what: &'static str, enabled: bool) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let record = named(&call)?;
    let (what, details) = ((call.asker(), what), told(&record.key, None, None));
    let set = move |record: &mut AppRecord| record.enabled = enabled;
    changed(&call.shared, what, &record, details, set).await
}

async fn changed(
    shared: &Shared,
    (asker, what): (Asker, &'static str),
    record: &AppRecord,
    details: Vec<(&'static str, String)>,
    change: impl Fn(&mut AppRecord) + Send + 'static,
) -> Result<Reply, Problem> {
    refuse_built_in(&record.key)?;
    let key = record.key.clone();
    let work = blocking(shared, move |gate| gate.change(key.as_str(), change));
    let record = audit::taken_down(shared, asker, (what, None), details, work).await?;
    Ok(json(StatusCode::OK, &view(shared, &record)))
}

/// `POST /v1/apps/{app}/rotate`
pub(crate) async fn rotate(call: Call) -> Result<Reply, Problem> {
    let (record, asker) = (named(&call)?, call.asker());
    let (shared, held) = take_json(call, APP_BYTES_MAX).await?;
    let keep_old = read_rotation(&held.bytes, JSON_DEPTH_MAX)?;
    let bounds = (Span::ZERO, KEEP_OLD_MAX);
    let keep_old = keep_old.map(|text| time::span("keep_old", &text, bounds)).transpose()?;
    drop(held);
    let mut details = told(&record.key, None, None);
    details.extend(keep_old.map(|keep| ("keep_old", keep.to_string())));
    let key = record.key.clone();
    let work = blocking(&shared, move |gate| gate.rotate(key.as_str(), keep_old));
    let (record, secret) =
        audit::taken_down(&shared, asker, ("app_rotate", None), details, work).await?;
    Ok(issued(&shared, StatusCode::OK, &record, secret))
}

/// `DELETE /v1/apps/{app}`
pub(crate) async fn delete(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let record = named(&call)?;
    refuse_built_in(&record.key)?;
    let details = told(&record.key, None, None);
    let key = record.key.clone();
    let work = blocking(&call.shared, move |gate| gate.delete(key.as_str()));
    audit::taken_down(&call.shared, call.asker(), ("app_delete", None), details, work).await?;
    Ok(json(StatusCode::OK, &Outcome { result: "deleted" }))
}

fn refuse_built_in(key: &AppKey) -> Result<(), Problem> {
    match key.is_admin() {
        true => Err(Code::AppReserved.into()),
        false => Ok(()),
    }
}

/// The app of the path, which must exist.
fn named(call: &Call) -> Result<Arc<AppRecord>, Problem> {
    let key = call.app_text();
    key.and_then(|key| call.shared.gate.get(&key)).ok_or_else(|| Code::AppNotFound.into())
}

async fn blocking<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&Gate) -> Result<T, AppError> + Send + 'static,
) -> Result<T, Problem> {
    let gate = shared.gate.clone();
    let done = shared.tasks.blocking(move || work(&gate)).await.map_err(of_broken_off)?;
    done.map_err(|error| match error {
        AppError::NotFound => Code::AppNotFound.into(),
        AppError::Exists => Code::AppExists.into(),
        AppError::Reserved(reason) => Problem::new(Code::AppReserved, reason),
        AppError::TooMany => Problem::new(Code::TooManyApps, error.to_string()),
        AppError::Disk(error) if punctual_engine::disk::is_full(&error) => Code::StorageFull.into(),
        AppError::Disk(error) => {
            tracing::error!(%error, "the apps cannot be written");
            Code::Unavailable.into()
        }
    })
}

fn grants(written: &[WrittenPermission<'_>]) -> Result<Vec<Grant>, Problem> {
    written.iter().map(grant).collect()
}

fn grant(written: &WrittenPermission<'_>) -> Result<Grant, Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidPermission, detail);
    let pattern = |text: &str| {
        let shown: String = text.chars().take(100).collect();
        let detail = format!("{shown:?} is neither a name nor the beginning of names and a *");
        Pattern::read(text).ok_or_else(|| refused(detail))
    };
    let mut verbs = Vec::new();
    for word in &written.verbs {
        let verb = Permission::of_verb(word).ok_or_else(|| {
            let known = Permission::GRANTED.map(Permission::verb).join(", ");
            let shown: String = word.chars().take(100).collect();
            refused(format!("there is no verb {shown:?}; there are {known}"))
        })?;
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    if verbs.is_empty() {
        return Err(refused("a permission has at least one verb".to_owned()));
    }
    let groups = written.groups.as_deref().map(pattern).transpose()?;
    let grant = Grant { topics: pattern(&written.topics)?, groups, verbs };
    match grant.verbs.iter().find(|verb| verb.concerns_all()) {
        Some(verb) if !grant.is_whole() => Err(refused(format!(
            "{} concerns the whole broker: topics and groups must both be \"*\"",
            verb.verb()
        ))),
        _ => Ok(grant),
    }
}

fn quotas(written: WrittenQuotas) -> Result<Quotas, Problem> {
    let WrittenQuotas { messages_per_second, bytes_per_second, pending, connections } = written;
    if [messages_per_second, bytes_per_second, pending, connections].contains(&Some(0)) {
        let detail = "a quota is at least 1; leave it out for no bound";
        return Err(Problem::new(Code::InvalidField, detail));
    }
    Ok(Quotas { messages_per_second, bytes_per_second, pending, connections })
}

/// What is taken down about an app; no secret is in it.
fn told(
    key: &AppKey,
    grants: Option<&[Grant]>,
    quotas: Option<Quotas>,
) -> Vec<(&'static str, String)> {
    let text = |shown: Result<String, serde_json::Error>| shown.unwrap_or_default();
    let mut details = vec![("app", key.to_string())];
    details.extend(grants.map(|grants| {
        let views: Vec<PermissionView> = grants.iter().map(permission_view).collect();
        ("permissions", text(serde_json::to_string(&views)))
    }));
    details
        .extend(quotas.map(|quotas| ("quotas", text(serde_json::to_string(&quotas_view(quotas))))));
    details
}

fn issued(shared: &Shared, status: StatusCode, record: &AppRecord, secret: NewSecret) -> Reply {
    let token = secret.token(&record.key);
    json(status, &IssuedView { app: view(shared, record), secret: secret.reveal(), token })
}

fn view(shared: &Shared, record: &AppRecord) -> AppView {
    let counted = shared.gate.counts_of(record.key.as_str());
    let counts = shared.trends.app(&AppIdentity::of(record), counted.into());
    AppView {
        key: record.key.to_string(),
        enabled: record.enabled,
        built_in: record.key.is_admin(),
        permissions: record.grants.iter().map(permission_view).collect(),
        quotas: quotas_view(record.quotas),
        created: record.created.to_string(),
        rotated: record.rotated.map(|rotated| rotated.to_string()),
        old_secret_until: record.old.as_ref().map(|old| old.until.to_string()),
        totals: AppTotalsView {
            scheduled: counts.get("scheduled"),
            bytes: counts.get("bytes"),
            refused: counts.get("refused"),
        },
    }
}

pub(crate) fn permission_view(grant: &Grant) -> PermissionView {
    PermissionView {
        topics: grant.topics.to_string(),
        groups: grant.groups.as_ref().map(Pattern::to_string),
        verbs: grant.verbs.iter().map(|verb| verb.verb()).collect(),
    }
}

const fn quotas_view(quotas: Quotas) -> WrittenQuotas {
    let Quotas { messages_per_second, bytes_per_second, pending, connections } = quotas;
    WrittenQuotas { messages_per_second, bytes_per_second, pending, connections }
}
