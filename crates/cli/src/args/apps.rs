//! Arguments of the commands about apps.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

const VERBS: &[&str] =
    &["send", "read", "cancel", "change", "consume", "see", "manage", "observe", "audit", "admin"];

#[derive(Debug, Subcommand)]
pub(crate) enum AppsCommand {
    /// List apps
    List,
    /// Show an app
    Show {
        /// Its key
        app: String,
    },
    /// Make an app; its secret is shown this once
    Create {
        /// Its key
        app: String,
        #[command(flatten)]
        settings: AppSettings,
    },
    /// Change what an app may do; what is not said stays as it is
    Set {
        /// Its key
        app: String,
        #[command(flatten)]
        settings: AppSettings,
    },
    /// Give an app another secret, which is shown this once
    Rotate {
        /// Its key
        app: String,
        /// How long the old secret still counts: 1h, up to 30d
        #[arg(long, value_name = "DURATION")]
        keep_old: Option<String>,
    },
    /// Refuse an app until it is enabled
    Disable {
        /// Its key
        app: String,
    },
    /// Let an app in again
    Enable {
        /// Its key
        app: String,
    },
    /// Remove an app
    Delete {
        /// Its key
        app: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AppSettings {
    /// What it may do, as often as needed; given at all, it replaces what was. Verbs: send, read,
    /// cancel, change, consume, see, manage; and for the whole broker, with `*`: observe, audit,
    /// admin. A name that ends in `*` stands for all that begin so
    #[arg(long = "allow", value_name = "VERBS:TOPICS[:GROUPS]", value_parser = permission)]
    pub(crate) permissions: Vec<Value>,
    /// Groups for those --allow that name none
    #[arg(long, value_name = "GROUPS", requires = "permissions")]
    pub(crate) group: Option<String>,
    /// Messages it may send in a second, or none for no bound
    #[arg(long, value_name = "N", value_parser = quota)]
    pub(crate) messages_per_second: Option<Value>,
    /// Bytes it may send in a second, or none
    #[arg(long, value_name = "N", value_parser = quota)]
    pub(crate) bytes_per_second: Option<Value>,
    /// Messages that may be pending in its topics, or none
    #[arg(long, value_name = "N", value_parser = quota)]
    pub(crate) pending: Option<Value>,
    /// Connections it may have, or none
    #[arg(long, value_name = "N", value_parser = quota)]
    pub(crate) connections: Option<Value>,
}

/// A permission as the API takes it.
fn permission(text: &str) -> Result<Value, String> {
    let mut parts = text.splitn(3, ':');
    let verbs: Vec<&str> = parts.next().unwrap_or_default().split(',').map(str::trim).collect();
    if let Some(unknown) = verbs.iter().find(|verb| !VERBS.contains(verb)) {
        return Err(format!("there is no verb {unknown:?}; there are {}", VERBS.join(", ")));
    }
    let topics = parts.next().filter(|topics| !topics.is_empty());
    let topics = topics.ok_or("write VERBS:TOPICS, as in send,read:orders.*")?;
    Ok(match parts.next() {
        Some(groups) => json!({"topics": topics, "groups": groups, "verbs": verbs}),
        None => json!({"topics": topics, "verbs": verbs}),
    })
}

/// A bound, or none.
fn quota(text: &str) -> Result<Value, String> {
    match text {
        "none" => Ok(Value::Null),
        text => text.parse::<u64>().map(Value::from).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_written_in_a_line() {
        let expected = json!({"topics": "orders.*", "verbs": ["send", "read"]});
        assert_eq!(permission("send,read:orders.*"), Ok(expected));
        let expected = json!({"topics": "*", "groups": "billing", "verbs": ["consume"]});
        assert_eq!(permission("consume:*:billing"), Ok(expected));
        assert!(permission("dance:orders").is_err_and(|error| error.contains("\"dance\"")));
        assert!(permission("send").is_err());
        assert!(permission("send:").is_err());
    }

    #[test]
    fn a_quota_is_a_number_or_none() {
        assert_eq!(quota("100"), Ok(100.into()));
        assert_eq!(quota("none"), Ok(Value::Null));
        assert!(quota("-1").is_err());
    }
}
