//! Settings of the server by which acknowledged messages may be lost, and those with which nothing
//! works.
//!
//! All of them are looked at when the store is opened; one that is changed later is the operator's.

use std::collections::HashMap;

use punctual_model::limits::{HEADER_BYTES_MAX, KEY_BYTES_MAX};
use sqlx::mysql::MySqlConnection;
use sqlx::{Executor, Row};

use super::options::{MysqlOptions, OpenError, unreachable};

/// The settings that may be named in [`MysqlOptions::allow_unsafe`].
pub const UNSAFE_SETTINGS: &[&str] = &[
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "innodb_doublewrite",
    "default_storage_engine",
    "wsrep_on",
    "group_replication_single_primary_mode",
];

/// A packet is never filled to the last byte.
const PACKET_SPARE: usize = 64 << 10;

/// No packet needs to be larger than this, unless one message is.
const PACKET_BYTES: usize = 4 << 20;

struct Rule {
    setting: &'static str,
    is_safe: fn(&str) -> bool,
    why: &'static str,
    advice: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        setting: "innodb_flush_log_at_trx_commit",
        is_safe: |value| value == "1",
        why: "a crash loses what was acknowledged in the last second",
        advice: "set it to 1",
    },
    Rule {
        setting: "innodb_doublewrite",
        is_safe: |value| !matches!(value, "OFF" | "0" | "DETECT_ONLY"),
        why: "a power cut may leave pages half written",
        advice: "set it to ON",
    },
    Rule {
        setting: "default_storage_engine",
        is_safe: |value| value.eq_ignore_ascii_case("InnoDB"),
        why: "other engines have no transactions",
        advice: "set it to InnoDB",
    },
    Rule {
        setting: "wsrep_on",
        is_safe: |value| value != "ON",
        why: "locks of one Galera member are not seen by another, so an old owner is not kept out",
        advice: "use one server, or give all nodes the same member",
    },
    Rule {
        setting: "group_replication_single_primary_mode",
        is_safe: |value| value == "ON",
        why: "locks of one primary are not seen by another, so an old owner is not kept out",
        advice: "set it to ON",
    },
];

/// Refuses names that are no settings, which would be taken for a permission.
pub(super) fn check_names(allowed: &[String]) -> Result<(), OpenError> {
    match allowed.iter().find(|name| !UNSAFE_SETTINGS.contains(&name.as_str())) {
        Some(unknown) => Err(OpenError::UnknownSetting(unknown.clone())),
        None => Ok(()),
    }
}

/// What matters of a server that may be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// How large a packet may be.
    pub(super) packet_bytes: usize,
    /// Whether it ends an idle transaction as each connection has told it to.
    pub(super) ends_idle_transactions: bool,
}

/// Looks at everything that matters.
pub(super) async fn check(
    connection: &mut MySqlConnection,
    options: &MysqlOptions,
) -> Result<Facts, OpenError> {
    let rows = connection.fetch_all("SHOW GLOBAL VARIABLES").await.map_err(unreachable)?;
    let mut values = HashMap::new();
    for row in rows {
        let name: String = row.try_get(0).map_err(unreachable)?;
        let value: String = row.try_get(1).map_err(unreachable)?;
        values.insert(name, value);
    }
    check_values(&values, options)
}

fn check_values(
    values: &HashMap<String, String>,
    options: &MysqlOptions,
) -> Result<Facts, OpenError> {
    let value = |name: &str| values.get(name).map_or("", String::as_str);
    check_version(value("version"))?;
    let is_allowed = |name: &str| options.allow_unsafe.iter().any(|allowed| allowed == name);
    for rule in RULES {
        let Rule { setting, is_safe, why, advice } = *rule;
        let Some(value) = values.get(setting) else { continue };
        if !is_safe(value) && !is_allowed(setting) {
            return Err(OpenError::Unsafe { setting, value: value.clone(), why, advice });
        }
    }
    let logs = value("log_bin") == "ON";
    if logs && value("sync_binlog") != "1" && !is_allowed("sync_binlog") {
        return Err(OpenError::Unsafe {
            setting: "sync_binlog",
            value: value("sync_binlog").to_owned(),
            why: "after a crash the binary log and the tables may differ",
            advice: "set it to 1",
        });
    }
    if logs && value("binlog_format") == "STATEMENT" {
        return Err(unfit("binlog_format", "STATEMENT", "set it to ROW or MIXED"));
    }
    for setting in ["read_only", "super_read_only", "innodb_read_only"] {
        if !matches!(value(setting), "" | "OFF" | "0") {
            return Err(unfit(setting, value(setting), "give the address of the primary"));
        }
    }
    Ok(Facts {
        packet_bytes: packet_bytes(value("max_allowed_packet"), options.body_bytes_max)?,
        ends_idle_transactions: values.contains_key("idle_transaction_timeout"),
    })
}

fn check_version(version: &str) -> Result<(), OpenError> {
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|digits| digits.parse::<u32>().ok()).unwrap_or(0);
    let found = (next(), next());
    let is_maria = version.contains("MariaDB");
    let (least, advice) = if is_maria {
        ((10, 5), "use MariaDB 10.5 or later")
    } else {
        ((8, 0), "use MySQL 8.0 or later")
    };
    if found < least { Err(unfit("version", version, advice)) } else { Ok(()) }
}

fn packet_bytes(value: &str, body_bytes_max: usize) -> Result<usize, OpenError> {
    let allowed: usize = value.parse().unwrap_or(0);
    // Twice, because a byte is sent as two digits.
    let message = 2 * (body_bytes_max + HEADER_BYTES_MAX + KEY_BYTES_MAX + PACKET_SPARE);
    if allowed < message + PACKET_SPARE {
        let advice = format!("set it to {} or more", message + PACKET_SPARE);
        return Err(unfit("max_allowed_packet", value, advice));
    }
    Ok((allowed - PACKET_SPARE).min(PACKET_BYTES))
}

fn unfit(setting: &'static str, value: &str, advice: impl Into<String>) -> OpenError {
    OpenError::Unfit { setting, value: value.to_owned(), advice: advice.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe() -> HashMap<String, String> {
        let values = [
            ("version", "10.11.6-MariaDB-log"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_doublewrite", "ON"),
            ("default_storage_engine", "InnoDB"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("binlog_format", "MIXED"),
            ("read_only", "OFF"),
            ("max_allowed_packet", "16777216"),
        ];
        values.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn with(name: &str, value: &str) -> HashMap<String, String> {
        let mut values = safe();
        values.insert(name.to_owned(), value.to_owned());
        values
    }

    #[test]
    fn what_is_safe_is_accepted() {
        assert!(check_values(&safe(), &MysqlOptions::new("")).is_ok());
        let mysql = with("version", "8.0.39");
        assert!(check_values(&mysql, &MysqlOptions::new("")).is_ok());
    }

    #[test]
    fn what_is_unsafe_is_refused_unless_named() {
        for (name, value) in [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("innodb_flush_log_at_trx_commit", "0"),
            ("innodb_doublewrite", "OFF"),
            ("default_storage_engine", "MyISAM"),
            ("sync_binlog", "0"),
            ("wsrep_on", "ON"),
            ("group_replication_single_primary_mode", "OFF"),
        ] {
            let mut options = MysqlOptions::new("");
            let refused = check_values(&with(name, value), &options).unwrap_err();
            let said = refused.to_string();
            assert!(said.contains(name) && said.contains(value), "{said}");
            options.allow_unsafe = vec![name.to_owned()];
            assert!(check_values(&with(name, value), &options).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_whatever_is_named() {
        let mut options = MysqlOptions::new("");
        options.allow_unsafe = UNSAFE_SETTINGS.iter().map(|name| (*name).to_owned()).collect();
        for (name, value) in [
            ("version", "5.7.44"),
            ("version", "10.4.34-MariaDB"),
            ("version", "nonsense"),
            ("read_only", "ON"),
            ("super_read_only", "ON"),
            ("binlog_format", "STATEMENT"),
            ("max_allowed_packet", "1048576"),
        ] {
            let refused = check_values(&with(name, value), &options);
            assert!(matches!(refused, Err(OpenError::Unfit { .. })), "{name} = {value}");
        }
    }

    #[test]
    fn a_name_that_is_no_setting_is_refused() {
        assert!(check_names(&["sync_binlog".to_owned()]).is_ok());
        assert!(check_names(&["everything".to_owned()]).is_err());
    }
}
