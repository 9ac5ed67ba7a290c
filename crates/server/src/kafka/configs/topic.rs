//! The settings of a topic by the names that Kafka's tools have for them.
//!
//! One table says for each name what it means here: it is one of our own settings, it can have only
//! one value because everything else would be a promise that is not kept, or it makes no difference
//! here and is kept for whoever asks. A name that is not in it is refused.

use punctual_api::topic::TopicChange;
use punctual_kafka_wire::error::ErrorCode;
use punctual_model::limits::{BATCH_BYTES_MAX, JSON_DEPTH_MAX};
use punctual_model::ports::Topic;
use punctual_model::topic::Stamps;
use punctual_model::{Span, TopicSettings};

use crate::http::settings::{changed, view};
use crate::kafka::refusal::Refusal;

/// What kind of value a setting has, by the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Truth = 1,
    Text = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// What a setting means here.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    RetentionMs,
    RetentionBytes,
    Stamps,
    BatchBytesMax,
    /// The setting of that name over HTTP.
    Own(&'static str),
    /// Only the default holds; the sentence says why.
    Fixed(&'static str),
    /// It makes no difference here, if it is one of these.
    Kept(Legal),
}

/// What a value may be that is only kept.
#[derive(Clone, Copy, Debug)]
enum Legal {
    Whole(i64, i64),
    Share,
    Truth,
    Words(&'static [&'static str]),
    /// Any text.
    Text,
}

/// A setting of a topic.
#[derive(Debug)]
pub(crate) struct TopicKey {
    pub(crate) name: &'static str,
    /// The setting of the broker that holds where the topic says nothing.
    pub(crate) of_broker: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    meaning: Meaning,
}

const INT_MAX: i64 = i32::MAX as i64;
const FOREVER: &str = "9223372036854775807";
const NO_COMPACTION: &str = "topics are not compacted here";
const ONE_BROKER: &str = "there is one broker";
const LOCAL: &str = "logs are kept on this machine only";
/// Kept as long as the sum of them stays small.
const KEPT_BYTES_MAX: usize = 256;

const fn key(
    name: &'static str,
    of_broker: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: Meaning,
) -> TopicKey {
    let of_broker = if of_broker.is_empty() { None } else { Some(of_broker) };
    TopicKey { name, of_broker, kind, default, meaning }
}

/// Every setting there is, by name.
#[rustfmt::skip]
pub(crate) static KEYS: &[TopicKey] = &[
    key("cleanup.policy", "log.cleanup.policy", Kind::List, "delete", Meaning::Fixed(NO_COMPACTION)),
    key("compression.gzip.level", "compression.gzip.level", Kind::Int, "-1", Meaning::Kept(Legal::Whole(-1, 9))),
    key("compression.lz4.level", "compression.lz4.level", Kind::Int, "9", Meaning::Kept(Legal::Whole(1, 17))),
    key("compression.type", "compression.type", Kind::Text, "producer", Meaning::Kept(Legal::Words(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]))),
    key("compression.zstd.level", "compression.zstd.level", Kind::Int, "3", Meaning::Kept(Legal::Whole(-131_072, 22))),
    key("delete.retention.ms", "log.cleaner.delete.retention.ms", Kind::Long, "86400000", Meaning::Kept(Legal::Whole(0, i64::MAX))),
    key("file.delete.delay.ms", "log.segment.delete.delay.ms", Kind::Long, "60000", Meaning::Kept(Legal::Whole(0, i64::MAX))),
    key("flush.messages", "log.flush.interval.messages", Kind::Long, FOREVER, Meaning::Kept(Legal::Whole(1, i64::MAX))),
    key("flush.ms", "log.flush.interval.ms", Kind::Long, FOREVER, Meaning::Kept(Legal::Whole(0, i64::MAX))),
    key("follower.replication.throttled.replicas", "", Kind::List, "", Meaning::Kept(Legal::Text)),
    key("index.interval.bytes", "log.index.interval.bytes", Kind::Int, "4096", Meaning::Kept(Legal::Whole(0, INT_MAX))),
    key("leader.replication.throttled.replicas", "", Kind::List, "", Meaning::Kept(Legal::Text)),
    key("local.retention.bytes", "log.local.retention.bytes", Kind::Long, "-2", Meaning::Fixed(LOCAL)),
    key("local.retention.ms", "log.local.retention.ms", Kind::Long, "-2", Meaning::Fixed(LOCAL)),
    key("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", Kind::Long, FOREVER, Meaning::Kept(Legal::Whole(1, i64::MAX))),
    key("max.message.bytes", "message.max.bytes", Kind::Int, "33554432", Meaning::BatchBytesMax),
    key("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", Kind::Long, "3600000", Meaning::Fixed("times further ahead are refused")),
    key("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", Kind::Long, FOREVER, Meaning::Fixed("no time is too old")),
    key("message.timestamp.type", "log.message.timestamp.type", Kind::Text, "CreateTime", Meaning::Stamps),
    key("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", Kind::Double, "0.5", Meaning::Kept(Legal::Share)),
    key("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", Kind::Long, "0", Meaning::Kept(Legal::Whole(0, i64::MAX))),
    key("min.insync.replicas", "min.insync.replicas", Kind::Int, "1", Meaning::Fixed(ONE_BROKER)),
    key("preallocate", "log.preallocate", Kind::Truth, "false", Meaning::Kept(Legal::Truth)),
    key("punctual.default_ttl", "", Kind::Text, "forever", Meaning::Own("default_ttl")),
    key("punctual.jitter", "", Kind::Text, "none", Meaning::Own("jitter")),
    key("punctual.max_delay", "", Kind::Text, "none", Meaning::Own("max_delay")),
    key("punctual.paused", "", Kind::Truth, "false", Meaning::Own("paused")),
    key("punctual.rate_cap", "", Kind::Text, "none", Meaning::Own("rate_cap")),
    key("remote.storage.enable", "", Kind::Truth, "false", Meaning::Fixed(LOCAL)),
    key("retention.bytes", "log.retention.bytes", Kind::Long, "-1", Meaning::RetentionBytes),
    key("retention.ms", "log.retention.ms", Kind::Long, "604800000", Meaning::RetentionMs),
    key("segment.bytes", "log.segment.bytes", Kind::Int, "1073741824", Meaning::Kept(Legal::Whole(14, INT_MAX))),
    key("segment.index.bytes", "log.index.size.max.bytes", Kind::Int, "10485760", Meaning::Kept(Legal::Whole(4, INT_MAX))),
    key("segment.jitter.ms", "log.roll.jitter.ms", Kind::Long, "0", Meaning::Kept(Legal::Whole(0, i64::MAX))),
    key("segment.ms", "log.roll.ms", Kind::Long, "604800000", Meaning::Kept(Legal::Whole(1, i64::MAX))),
    key("unclean.leader.election.enable", "unclean.leader.election.enable", Kind::Truth, "false", Meaning::Fixed(ONE_BROKER)),
];

/// The setting of that name.
pub(crate) fn find(name: &str) -> Result<&'static TopicKey, Refusal> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let text = format!("there is no setting {name} of a topic");
        Refusal::new(ErrorCode::INVALID_CONFIG, text)
    })
}

impl TopicKey {
    /// Sets it; no delay is longer than `delay_max`.
    pub(crate) fn set(
        &self,
        settings: &mut TopicSettings,
        value: &str,
        delay_max: Span,
    ) -> Result<(), Refusal> {
        let value = value.trim();
        match self.meaning {
            Meaning::RetentionMs => {
                let millis = self.at_least_minus_one(value)?;
                settings.retention = millis.map(Span::from_millis);
            }
            Meaning::RetentionBytes => {
                settings.retention_bytes = self.at_least_minus_one(value)?;
            }
            Meaning::Stamps => {
                settings.stamps = match value {
                    "CreateTime" => Stamps::Producer,
                    "LogAppendTime" => Stamps::Log,
                    _ => return Err(self.refuse(value, "it is CreateTime or LogAppendTime")),
                };
            }
            Meaning::BatchBytesMax => {
                let bytes = value.parse::<u32>().ok();
                let fits =
                    |bytes: &u32| usize::try_from(*bytes).is_ok_and(|b| b <= BATCH_BYTES_MAX);
                let bytes = bytes.filter(fits).ok_or_else(|| {
                    self.refuse(value, &format!("it is a number from 0 to {BATCH_BYTES_MAX}"))
                })?;
                let own = usize::try_from(bytes).is_ok_and(|bytes| bytes < BATCH_BYTES_MAX);
                settings.batch_bytes_max = own.then_some(bytes);
            }
            Meaning::Own(name) => {
                let old = std::mem::take(settings);
                *settings = self.set_own(old, name, value, delay_max)?;
            }
            Meaning::Fixed(why) => {
                if value != self.default {
                    return Err(self.refuse(value, &format!("it is {}: {why}", self.default)));
                }
            }
            Meaning::Kept(legal) => {
                legal.check(value).map_err(|reason| self.refuse(value, reason))?;
                settings.kept.insert(self.name.into(), value.into());
            }
        }
        Ok(())
    }

    /// Sets it to what holds where nothing is said.
    pub(crate) fn reset(&self, settings: &mut TopicSettings) {
        let usual = TopicSettings::default();
        match self.meaning {
            Meaning::RetentionMs => settings.retention = usual.retention,
            Meaning::RetentionBytes => settings.retention_bytes = None,
            Meaning::Stamps => settings.stamps = Stamps::default(),
            Meaning::BatchBytesMax => settings.batch_bytes_max = None,
            Meaning::Own("default_ttl") => settings.default_ttl = None,
            Meaning::Own("jitter") => settings.jitter = None,
            Meaning::Own("max_delay") => settings.max_delay = None,
            Meaning::Own("paused") => settings.paused = false,
            Meaning::Own("rate_cap") => settings.rate_cap = None,
            Meaning::Own(_) | Meaning::Fixed(_) => {}
            Meaning::Kept(_) => {
                settings.kept.remove(self.name);
            }
        }
    }

    /// What holds, and whether the topic says so itself.
    pub(crate) fn shown(&self, topic: &Topic) -> (String, bool) {
        let settings = &topic.settings;
        let number = |value: Option<u64>| value.map_or_else(|| "-1".to_owned(), |v| v.to_string());
        let value = match self.meaning {
            Meaning::RetentionMs => number(settings.retention.map(Span::as_millis)),
            Meaning::RetentionBytes => number(settings.retention_bytes),
            Meaning::Stamps => match settings.stamps {
                Stamps::Producer => "CreateTime".to_owned(),
                Stamps::Log => "LogAppendTime".to_owned(),
            },
            Meaning::BatchBytesMax => {
                let own = settings.batch_bytes_max;
                own.map_or_else(|| BATCH_BYTES_MAX.to_string(), |bytes| bytes.to_string())
            }
            Meaning::Own(name) => {
                let shown = view(topic, None);
                let own = match name {
                    "default_ttl" => shown.default_ttl,
                    "jitter" => shown.jitter,
                    "max_delay" => shown.max_delay,
                    "rate_cap" => shown.rate_cap.map(|cap| cap.to_string()),
                    _ => Some(settings.paused.to_string()),
                };
                own.unwrap_or_else(|| self.default.to_owned())
            }
            Meaning::Fixed(_) => self.default.to_owned(),
            Meaning::Kept(_) => {
                let kept = settings.kept.get(self.name);
                return kept.map_or_else(
                    || (self.default.to_owned(), false),
                    |kept| (kept.to_string(), true),
                );
            }
        };
        let own = value != self.default;
        (value, own)
    }

    /// Whether it is a list that values may be added to and taken from.
    pub(crate) fn is_list(&self) -> bool {
        self.kind == Kind::List
    }

    fn at_least_minus_one(&self, value: &str) -> Result<Option<u64>, Refusal> {
        match value.parse::<i64>() {
            Ok(-1) => Ok(None),
            Ok(number) if number >= 0 => Ok(u64::try_from(number).ok()),
            _ => Err(self.refuse(value, "it is a number, or -1 for no bound")),
        }
    }

    fn set_own(
        &self,
        settings: TopicSettings,
        name: &str,
        value: &str,
        delay_max: Span,
    ) -> Result<TopicSettings, Refusal> {
        let plain = value.parse::<u64>().is_ok() && name == "rate_cap";
        let written = match value {
            "true" | "false" => value.to_owned(),
            value if plain => value.to_owned(),
            value => serde_json::Value::from(value).to_string(),
        };
        let json = format!("{{{name:?}:{written}}}");
        let change = TopicChange::read(json.as_bytes(), JSON_DEPTH_MAX);
        let set = change.and_then(|change| changed(settings, change, delay_max));
        set.map_err(|problem| self.refuse(value, &problem.detail))
    }

    fn refuse(&self, value: &str, reason: &str) -> Refusal {
        let shown: String = value.chars().take(KEPT_BYTES_MAX).collect();
        let text = format!("{} = {shown:?}: {reason}", self.name);
        Refusal::new(ErrorCode::INVALID_CONFIG, text)
    }
}

impl Legal {
    fn check(self, value: &str) -> Result<(), &'static str> {
        let whole = || value.parse::<i64>().ok();
        let good = match self {
            Self::Whole(least, most) => whole().is_some_and(|n| (least..=most).contains(&n)),
            Self::Share => value.parse::<f64>().is_ok_and(|n| (0.0..=1.0).contains(&n)),
            Self::Truth => value == "true" || value == "false",
            Self::Words(words) => words.contains(&value),
            Self::Text => value.len() <= KEPT_BYTES_MAX,
        };
        if good { Ok(()) } else { Err("that is no legal value of it") }
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::topic::TopicKind;
    use punctual_model::{TopicId, TopicName};

    use super::*;

    fn topic(settings: TopicSettings) -> Topic {
        Topic {
            id: TopicId::new(1).unwrap(),
            name: TopicName::new("t").unwrap(),
            kind: TopicKind::Plain,
            key_partitions: 1,
            settings,
        }
    }

    fn set(settings: &mut TopicSettings, name: &str, value: &str) -> Result<(), ErrorCode> {
        let key = find(name).map_err(|refusal| refusal.code)?;
        key.set(settings, value, Span::from_days(40)).map_err(|refusal| refusal.code)
    }

    #[test]
    fn what_nobody_set_is_shown_as_the_default_and_can_be_set_to_it() {
        let usual = topic(TopicSettings::default());
        for key in KEYS {
            assert_eq!(key.shown(&usual), (key.default.to_owned(), false), "{}", key.name);
            let mut settings = TopicSettings::default();
            set(&mut settings, key.name, key.default).unwrap();
            assert_eq!(key.shown(&topic(settings.clone())).0, key.default);
            key.reset(&mut settings);
            assert_eq!(settings, TopicSettings::default(), "{}", key.name);
        }
        assert!(KEYS.is_sorted_by_key(|key| key.name));
    }

    #[test]
    fn settings_of_ours_have_their_names_of_kafka() {
        for (name, value) in [
            ("retention.ms", "1000"),
            ("retention.ms", "-1"),
            ("retention.bytes", "5000000000"),
            ("message.timestamp.type", "LogAppendTime"),
            ("max.message.bytes", "100000"),
            ("punctual.max_delay", "1h"),
            ("punctual.default_ttl", "30s"),
            ("punctual.jitter", "5s"),
            ("punctual.rate_cap", "100"),
            ("punctual.paused", "true"),
            ("compression.type", "lz4"),
            ("flush.ms", "12345678"),
        ] {
            let mut settings = TopicSettings::default();
            assert_eq!(set(&mut settings, name, value), Ok(()), "{name}");
            assert_ne!(settings, TopicSettings::default(), "{name}");
            let key = find(name).unwrap();
            assert_eq!(key.shown(&topic(settings.clone())), (value.to_owned(), true));
            key.reset(&mut settings);
            assert_eq!(settings, TopicSettings::default(), "{name}");
        }
    }

    #[test]
    fn what_would_not_hold_is_refused() {
        for (name, value) in [
            ("cleanup.policy", "compact"),
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "-2"),
            ("retention.ms", "soon"),
            ("retention.bytes", ""),
            ("message.timestamp.type", "createtime"),
            ("max.message.bytes", "33554433"),
            ("max.message.bytes", "-1"),
            ("min.insync.replicas", "2"),
            ("flush.ms", "later"),
            ("compression.type", "best"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("punctual.max_delay", "41d"),
            ("punctual.max_delay", "\"},{\""),
            ("punctual.rate_cap", "0"),
            ("punctual.paused", "maybe"),
            ("no.such.setting", "1"),
            ("", "1"),
        ] {
            let mut settings = TopicSettings::default();
            let refused = set(&mut settings, name, value);
            assert_eq!(refused, Err(ErrorCode::INVALID_CONFIG), "{name}={value}");
        }
        let compact = find("cleanup.policy").unwrap();
        let refused = compact.set(&mut TopicSettings::default(), "compact", Span::ZERO);
        assert!(refused.unwrap_err().message.unwrap().contains("not compacted"));
    }
}
