//! Apps in JSON: who may ask for what, and how much.
//!
//! A secret is in an answer once, when it is made, and never again.

use std::borrow::Cow;

use serde::Serialize;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::{Bounded, Item};
use crate::request::fields::Fields;
use crate::request::value::string;

/// How many permissions and verbs are read.
#[derive(Clone, Copy, Debug)]
pub struct AppLimits {
    /// Deepest nesting of the request.
    pub depth: usize,
    /// Most permissions of an app.
    pub permissions: usize,
    /// Most verbs of a permission.
    pub verbs: usize,
}

/// An app that somebody wants to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApp<'a> {
    /// What it is called.
    pub key: Cow<'a, str>,
    /// What it may do; nothing where nothing is said.
    pub permissions: Vec<WrittenPermission<'a>>,
    /// How much it may do.
    pub quotas: Quotas,
}

/// What is to change about an app; each part that is said takes the place of what was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppChange<'a> {
    /// What it may do.
    pub permissions: Option<Vec<WrittenPermission<'a>>>,
    /// How much it may do.
    pub quotas: Option<Quotas>,
}

/// A permission as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenPermission<'a> {
    /// On which topics: a name, or the beginning of names and `*`.
    pub topics: Cow<'a, str>,
    /// For which groups of them; none where nothing is said.
    pub groups: Option<Cow<'a, str>>,
    /// What may be done.
    pub verbs: Vec<Cow<'a, str>>,
}

/// How much an app may do; what is not said has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quotas {
    /// Messages sent in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_second: Option<u64>,
    /// Bytes of messages sent in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Messages pending in the topics that it may send to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// Connections at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
}

impl<'a> NewApp<'a> {
    /// Reads the object of a POST.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], limits: AppLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let key = fields.take_string("key")?;
        let (permissions, quotas) = take_rights(&mut fields, limits)?;
        fields.end()?;
        let needed = || Problem::new(Code::InvalidAppKey, "an app needs a key");
        let key = key.ok_or_else(needed)?;
        let (permissions, quotas) = (permissions.unwrap_or_default(), quotas.unwrap_or_default());
        Ok(Self { key, permissions, quotas })
    }
}

impl<'a> AppChange<'a> {
    /// Reads the object of a PATCH.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], limits: AppLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let (permissions, quotas) = take_rights(&mut fields, limits)?;
        fields.end()?;
        if permissions.is_none() && quotas.is_none() {
            return Err(Code::EmptyChange.into());
        }
        Ok(Self { permissions, quotas })
    }
}

/// Reads `{"keep_old":…}`: how long the old secret is to count, as it was written.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong.
pub fn read_rotation(json: &[u8], depth_max: usize) -> Result<Option<Cow<'_, str>>, Problem> {
    let mut fields = Fields::read(json, depth_max)?;
    let keep_old = fields.take_text("keep_old")?;
    fields.end()?;
    Ok(keep_old)
}

type Rights<'a> = (Option<Vec<WrittenPermission<'a>>>, Option<Quotas>);

fn take_rights<'a>(fields: &mut Fields<'a>, limits: AppLimits) -> Result<Rights<'a>, Problem> {
    let permissions = fields.take("permissions").map(|raw| permissions(raw, limits)).transpose()?;
    let quotas = fields.take("quotas").map(quotas).transpose()?;
    Ok((permissions, quotas))
}

fn permissions(raw: &str, limits: AppLimits) -> Result<Vec<WrittenPermission<'_>>, Problem> {
    array("permissions", raw, limits.permissions)?
        .into_iter()
        .map(|item| permission(item.0.get(), limits))
        .collect()
}

fn permission(raw: &str, limits: AppLimits) -> Result<WrittenPermission<'_>, Problem> {
    let refused = |detail: &'static str| Problem::new(Code::InvalidPermission, detail);
    let mut fields = Fields::nested("a permission", raw)
        .map_err(|problem| Problem::new(Code::InvalidPermission, problem.detail))?;
    let topics = fields.take_string("topics")?;
    let groups = fields.take_string("groups")?;
    let verbs = fields.take("verbs").unwrap_or("[]");
    fields.end()?;
    let verbs = array("verbs", verbs, limits.verbs)?;
    let verbs =
        verbs.into_iter().map(|item| string("a verb", item.0.get())).collect::<Result<_, _>>();
    let topics = topics.ok_or_else(|| refused("a permission says on which topics"))?;
    Ok(WrittenPermission { topics, groups, verbs: verbs? })
}

fn array<'a>(field: &str, raw: &'a str, most: usize) -> Result<Vec<Item<'a>>, Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidPermission, detail);
    if !raw.starts_with('[') {
        return Err(refused(format!("{field} must be an array")));
    }
    Bounded::<Item<'a>>::read(raw, most, |most| refused(format!("{field} has at most {most}")))
}

fn quotas(raw: &str) -> Result<Quotas, Problem> {
    let mut fields = Fields::nested("quotas", raw)?;
    let quotas = Quotas {
        messages_per_second: fields.take_whole("messages_per_second")?,
        bytes_per_second: fields.take_whole("bytes_per_second")?,
        pending: fields.take_whole("pending")?,
        connections: fields.take_whole("connections")?,
    };
    fields.end()?;
    Ok(quotas)
}

/// A permission as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PermissionView {
    /// On which topics.
    pub topics: String,
    /// For which groups of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<String>,
    /// What may be done.
    pub verbs: Vec<&'static str>,
}

/// An app as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AppView {
    /// What it is called.
    pub key: String,
    /// Whether its secret counts.
    pub enabled: bool,
    /// Whether it came with the broker.
    pub built_in: bool,
    /// What it may do.
    pub permissions: Vec<PermissionView>,
    /// How much it may do.
    pub quotas: Quotas,
    /// When it was made.
    pub created: String,
    /// When its secret was changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotated: Option<String>,
    /// How long the secret before that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_secret_until: Option<String>,
    /// What it has sent since it was made.
    pub totals: AppTotalsView,
}

/// What an app has sent since it was made; restarts do not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AppTotalsView {
    /// Messages that were stored.
    pub scheduled: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that a quota refused, each time.
    pub refused: u64,
}

/// An app with its new secret, which is shown this once.
#[derive(Serialize)]
pub struct IssuedView {
    /// The app.
    #[serde(flatten)]
    pub app: AppView,
    /// Its secret.
    pub secret: String,
    /// What it says to be let in.
    pub token: String,
}

impl std::fmt::Debug for IssuedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedView").field("app", &self.app).finish_non_exhaustive()
    }
}

/// One page of apps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AppList {
    /// By their keys.
    pub apps: Vec<AppView>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AppLimits = AppLimits { depth: 8, permissions: 2, verbs: 3 };

    #[test]
    fn an_app_is_read() {
        let json = br#"{"key":"orders","permissions":[{"topics":"orders.*","groups":"g","verbs":["send","read"]},
            {"topics":"a"}],"quotas":{"pending":5,"connections":null}}"#;
        let app = NewApp::read(json, LIMITS).unwrap();
        assert_eq!((&*app.key, app.permissions.len()), ("orders", 2));
        assert_eq!(app.permissions[0].verbs, ["send", "read"]);
        assert_eq!((app.permissions[1].groups.as_ref(), app.permissions[1].verbs.len()), (None, 0));
        assert_eq!(app.quotas, Quotas { pending: Some(5), ..Quotas::default() });
        let plain = NewApp::read(br#"{"key":"k"}"#, LIMITS).unwrap();
        assert_eq!((plain.permissions.len(), plain.quotas), (0, Quotas::default()));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (json, code) in [
            ("{}", Code::InvalidAppKey),
            (r#"{"key":5}"#, Code::InvalidField),
            (r#"{"key":"k","secret":"mine"}"#, Code::UnknownField),
            (r#"{"key":"k","permissions":{}}"#, Code::InvalidPermission),
            (r#"{"key":"k","permissions":[5]}"#, Code::InvalidPermission),
            (r#"{"key":"k","permissions":[{"verbs":["send"]}]}"#, Code::InvalidPermission),
            (
                r#"{"key":"k","permissions":[{"topics":"a","verbs":"send"}]}"#,
                Code::InvalidPermission,
            ),
            (r#"{"key":"k","permissions":[{"topics":"a","admin":true}]}"#, Code::UnknownField),
            (
                r#"{"key":"k","permissions":[{"topics":"a"},{"topics":"a"},{"topics":"a"}]}"#,
                Code::InvalidPermission,
            ),
            (r#"{"key":"k","quotas":[]}"#, Code::InvalidField),
            (r#"{"key":"k","quotas":{"pending":-1}}"#, Code::InvalidField),
            (r#"{"key":"k","quotas":{"per_second":1}}"#, Code::UnknownField),
        ] {
            assert_eq!(NewApp::read(json.as_bytes(), LIMITS).unwrap_err().code, code, "{json}");
        }
        assert_eq!(AppChange::read(b"{}", LIMITS).unwrap_err().code, Code::EmptyChange);
        let change = AppChange::read(br#"{"quotas":{}}"#, LIMITS).unwrap();
        assert_eq!((change.permissions, change.quotas), (None, Some(Quotas::default())));
    }

    #[test]
    fn a_secret_is_not_in_what_is_printed() {
        let app = AppView {
            key: "k".to_owned(),
            enabled: true,
            built_in: false,
            permissions: Vec::new(),
            quotas: Quotas::default(),
            created: String::new(),
            rotated: None,
            old_secret_until: None,
            totals: AppTotalsView::default(),
        };
        let (secret, token) = ("topsecret".to_owned(), "k.topsecret".to_owned());
        let issued = IssuedView { app, secret, token };
        assert!(!format!("{issued:?}").contains("topsecret"));
        assert!(serde_json::to_string(&issued).unwrap().contains(r#""token":"k.topsecret""#));
    }
}
