//! The limits that the document tells, and the parameters that are bounded by them.

use punctual_api::Code;
use punctual_api::schema::{
    Bounds, Schema, any_of, base64, count, edge_asked, id_asked, integer, list, name, named,
    object, span_asked, text, time_asked, word,
};
use punctual_model::id::ID_CHARS;
use punctual_model::{Span, Timestamp, limits};

use super::described::{Described, QUERY};
use crate::access::{APP_KEY_CHARS_MAX, Permission};
use crate::http::apps;
use crate::push;

/// The limits that the document tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) bounds: Bounds,
}

impl Numbers {
    /// Those of the model, with the longest delay of this server.
    pub(super) fn new(delay_max: Span) -> Self {
        let bounds = Bounds {
            name_chars: limits::NAME_CHARS_MAX,
            batch_messages: limits::BATCH_MESSAGES_MAX,
            headers: limits::HEADERS_MAX,
            key_bytes: limits::KEY_BYTES_MAX,
            own_id_bytes: limits::OWN_ID_BYTES_MAX,
            attempts: limits::ATTEMPTS_MAX,
            partitions: limits::PARTITIONS_MAX,
            delay: delay_max.as_millis(),
            time: Timestamp::MAX.as_millis(),
            delay_ceiling: limits::DELAY_CEILING.as_millis(),
            every_min: limits::REPEAT_EVERY_MIN.as_millis(),
            page: limits::PAGE_MESSAGES_MAX,
            page_default: limits::PAGE_MESSAGES_DEFAULT,
            receive: limits::RECEIVE_MESSAGES_MAX,
            receive_default: limits::RECEIVE_MESSAGES_DEFAULT,
            wait: limits::RECEIVE_WAIT_MAX.as_millis(),
            lease_min: limits::LEASE_MIN.as_millis(),
            lease_max: limits::LEASE_MAX.as_millis(),
            receipts: limits::RECEIPTS_MAX,
            rungs: limits::LADDER_RUNGS_MAX,
            rate: limits::RATE_CAP_MAX,
            jitter: limits::JITTER_MAX.as_millis(),
            checks: limits::CHECKS_MAX,
            check_interval_min: limits::CHECK_INTERVAL_MIN.as_millis(),
            retry_wait: limits::DELAY_MAX.as_millis(),
            push_concurrency: push::CONCURRENCY_MAX,
            push_timeout: (push::TIMEOUT_MIN.as_millis(), push::TIMEOUT_MAX.as_millis()),
            url_chars: push::URL_CHARS_MAX,
            id_chars: ID_CHARS,
            app_key_chars: APP_KEY_CHARS_MAX,
            permissions: apps::PERMISSIONS_MAX,
            verbs: Permission::GRANTED.map(Permission::verb),
            keep_old: apps::KEEP_OLD_MAX.as_millis(),
        };
        Self { bounds }
    }

    /// The name of a topic or group.
    pub(super) fn name(&self) -> Schema {
        name(&self.bounds)
    }

    /// How many of a listing.
    pub(super) fn limit(&self) -> Schema {
        let most = u64::try_from(self.bounds.page).unwrap_or(u64::MAX);
        integer(1u64, most).default(self.bounds.page_default)
    }

    /// How many of what is shown among other figures.
    pub(super) fn few(&self) -> Schema {
        integer(1u64, u64::try_from(self.bounds.page).unwrap_or(u64::MAX))
    }

    /// A listing of what has a name.
    pub(super) fn name_query(&self, described: Described) -> Described {
        let part =
            text().about("Only those with this in their name; capital letters do not matter.");
        described.query("name", part)
    }

    /// A listing along the timeline.
    pub(super) fn page(&self, described: Described) -> Described {
        self.paged(described, text().pattern("^[0-9a-fA-F]+-[0-9a-fA-F]+$").format("place"))
    }

    /// A listing by name.
    pub(super) fn named_page(&self, described: Described) -> Described {
        self.paged(described, text().format("name-cursor"))
    }

    /// A listing by number.
    pub(super) fn counted_page(&self, described: Described) -> Described {
        self.paged(described, text().pattern("^[0-9]+$").format("number-cursor"))
    }

    /// A listing of groups, by topic and name.
    pub(super) fn group_page(&self, described: Described) -> Described {
        let cursor = text().pattern("^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$").format("group-cursor");
        self.paged(described, cursor)
    }

    /// A listing of jobs.
    pub(super) fn job_page(&self, described: Described) -> Described {
        self.paged(described, text().pattern("^[0-9a-f]{16}$"))
    }

    fn paged(&self, described: Described, cursor: Schema) -> Described {
        described
            .query("limit", self.limit())
            .query("cursor", cursor.about("What the page before gave as `next`."))
            .refused(QUERY)
            .refused(&[Code::InvalidCursor])
    }

    /// A page of a log, which goes on at an offset.
    pub(super) fn log_page(&self) -> Schema {
        object().with("messages", list(named("Message"))).with("next", count())
    }

    /// Which pending messages.
    pub(super) fn pending_query(&self, described: Described) -> Described {
        described
            .query("from", edge_asked())
            .query("to", edge_asked())
            .query("key", text())
            .query("key_base64", base64())
            .query("key_prefix", text())
            .query("app", text().about("The key of the app that sent them."))
            .query("state", word(["scheduled", "paused"]))
    }

    /// Which dead letters.
    pub(super) fn dead_query(&self, described: Described) -> Described {
        described
            .query("reason", word(["rejected", "expired", "overflow", "attempts_exhausted"]))
            .query("from", edge_asked())
            .query("to", edge_asked())
            .query("day", text().format("date").about("Instead of from and to."))
            .query("key", text())
            .query("key_base64", base64())
            .query("id", id_asked(&self.bounds))
    }

    /// The fields of a message, as parameters.
    pub(super) fn message_query(&self, described: Described) -> Described {
        let bounds = &self.bounds;
        let spread = text().pattern("^(spread|skip_older_than):.+$").format("catch-up");
        described
            .query("key", text().set("maxLength", bounds.key_bytes))
            .query("key_base64", base64())
            .query("delay", span_asked(0, bounds.delay))
            .query("deliver_at", time_asked(bounds))
            .query("delay_level", integer(1u64, 18u64))
            .query("partition", integer(0u64, bounds.partitions - 1))
            .query("ttl", span_asked(1, bounds.delay_ceiling))
            .query("max_attempts", integer(1u64, bounds.attempts))
            .query("id", text().length(1, bounds.own_id_bytes).format("own-id"))
            .query("on_conflict", word(["reject", "replace"]))
            .query("every", span_asked(bounds.every_min, bounds.delay_ceiling))
            .query("cron", text().format("cron"))
            .query("zone", text().format("time-zone"))
            .query("count", integer(1u64, u32::MAX))
            .query("until", time_asked(bounds))
            .query("catch_up", any_of([word(["all", "latest"]), spread]))
    }
}
