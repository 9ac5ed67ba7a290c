//! Who sits at a browser, in JSON.

use std::borrow::Cow;

use serde::Serialize;

use crate::app::PermissionView;
use crate::code::Code;
use crate::problem::Problem;
use crate::request::fields::Fields;

/// Who asks, and what a page has to know to show what they can do.
#[derive(Clone, Debug, Serialize)]
pub struct SessionView {
    /// Whether everybody must say who they are.
    pub auth: bool,
    /// Whether this one has, or need not.
    pub signed_in: bool,
    /// The key of the app.
    pub app: Option<String>,
    /// What may be asked for.
    pub permissions: Vec<PermissionView>,
    /// What shows that a page of ours asks: changes need it in `X-Punctual-Csrf`.
    pub csrf: Option<String>,
    /// Until when the session counts, as RFC 3339.
    pub expires_at: Option<String>,
    /// `single` or `cluster`.
    pub mode: &'static str,
    /// Where due messages go: `log` or `kafka`.
    pub outlet: &'static str,
    /// The version of the server.
    pub version: &'static str,
}

/// Reads `{"token":"KEY.SECRET"}`.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong.
pub fn read_sign_in(json: &[u8], depth_max: usize) -> Result<Cow<'_, str>, Problem> {
    let mut fields = Fields::read(json, depth_max)?;
    let token = fields.take_string("token")?;
    fields.end()?;
    token.ok_or_else(|| Problem::new(Code::InvalidField, "give a token: KEY.SECRET"))
}
