//! Settings of a topic that came after format 2: a list of tagged values. A tag that is not known
//! is an error, as is any other byte that this program did not write.

use std::sync::Arc;

use crate::topic::Stamps;
use crate::{CatchUp, CheckPolicy, Span, TopicSettings};

use crate::stored::codec::{self, Malformed};
use crate::stored::topic::{decode_levels, encode_levels};

const MAX_DELAY: u8 = 1;
const RATE_CAP: u8 = 2;
const JITTER: u8 = 3;
const CATCH_UP: u8 = 4;
const LEVELS: u8 = 5;
const CHECK: u8 = 6;
const PAUSED: u8 = 7;
const STAMPS: u8 = 8;
const BATCH_BYTES_MAX: u8 = 9;
const KEPT: u8 = 10;

/// Appends what differs from nothing at all.
pub(super) fn encode(out: &mut Vec<u8>, settings: &TopicSettings) {
    let mut list = Vec::new();
    if let Some(delay) = settings.max_delay {
        put(&mut list, MAX_DELAY, &delay.as_millis().to_le_bytes());
    }
    if let Some(cap) = settings.rate_cap {
        put(&mut list, RATE_CAP, &cap.to_le_bytes());
    }
    if let Some(jitter) = settings.jitter {
        put(&mut list, JITTER, &jitter.as_millis().to_le_bytes());
    }
    let catch_up = match settings.catch_up {
        CatchUp::All => None,
        CatchUp::Spread(span) => Some((1, span)),
        CatchUp::SkipOlder(span) => Some((2, span)),
        CatchUp::Latest => Some((3, Span::default())),
    };
    if let Some((kind, span)) = catch_up {
        let mut value = vec![kind];
        value.extend_from_slice(&span.as_millis().to_le_bytes());
        put(&mut list, CATCH_UP, &value);
    }
    if let Some(levels) = &settings.levels {
        let mut value = Vec::new();
        encode_levels(&mut value, levels);
        put(&mut list, LEVELS, &value);
    }
    if let Some(CheckPolicy { first, interval, max }) = settings.check {
        let mut value = Vec::new();
        value.extend_from_slice(&first.as_millis().to_le_bytes());
        value.extend_from_slice(&interval.as_millis().to_le_bytes());
        value.extend_from_slice(&max.to_le_bytes());
        put(&mut list, CHECK, &value);
    }
    if settings.paused {
        put(&mut list, PAUSED, &[]);
    }
    if settings.stamps == Stamps::Log {
        put(&mut list, STAMPS, &[]);
    }
    if let Some(bytes) = settings.batch_bytes_max {
        put(&mut list, BATCH_BYTES_MAX, &bytes.to_le_bytes());
    }
    for (name, text) in &settings.kept {
        let mut value = Vec::new();
        put_length(&mut value, name.len());
        value.extend_from_slice(name.as_bytes());
        value.extend_from_slice(text.as_bytes());
        put(&mut list, KEPT, &value);
    }
    put_length(out, list.len());
    out.extend_from_slice(&list);
}

fn put(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    put_length(out, value.len());
    out.extend_from_slice(value);
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("settings are small");
    out.extend_from_slice(&length.to_le_bytes());
}

/// Reads what [`encode`] wrote into `settings`.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(super) fn decode(rest: &mut &[u8], settings: &mut TopicSettings) -> Result<(), Malformed> {
    let mut list = get(rest)?;
    while !list.is_empty() {
        let tag = codec::get_u8(&mut list)?;
        let mut value = get(&mut list)?;
        let value = &mut value;
        match tag {
            MAX_DELAY => settings.max_delay = Some(get_span(value)?),
            RATE_CAP => settings.rate_cap = Some(codec::get_u32(value)?),
            JITTER => settings.jitter = Some(get_span(value)?),
            CATCH_UP => {
                let kind = codec::get_u8(value)?;
                let span = get_span(value)?;
                settings.catch_up = match kind {
                    1 => CatchUp::Spread(span),
                    2 => CatchUp::SkipOlder(span),
                    3 => CatchUp::Latest,
                    _ => return Err(Malformed),
                };
            }
            LEVELS => settings.levels = Some(decode_levels(value)?),
            CHECK => {
                let (first, interval) = (get_span(value)?, get_span(value)?);
                let max = codec::get_u16(value)?;
                settings.check = Some(CheckPolicy { first, interval, max });
            }
            PAUSED => settings.paused = true,
            STAMPS => settings.stamps = Stamps::Log,
            BATCH_BYTES_MAX => settings.batch_bytes_max = Some(codec::get_u32(value)?),
            KEPT => {
                let (name, text) = (get_text(get(value)?)?, get_text(std::mem::take(value))?);
                settings.kept.insert(name, text);
            }
            _ => return Err(Malformed),
        }
        if !value.is_empty() {
            return Err(Malformed);
        }
    }
    Ok(())
}

fn get<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(codec::get_u32(rest)?).map_err(|_e| Malformed)?;
    codec::take(rest, length)
}

fn get_text(bytes: &[u8]) -> Result<Arc<str>, Malformed> {
    std::str::from_utf8(bytes).map(Arc::from).map_err(|_e| Malformed)
}

fn get_span(rest: &mut &[u8]) -> Result<Span, Malformed> {
    codec::get_u64(rest).map(Span::from_millis)
}

#[cfg(test)]
mod tests {
    use crate::DelayLevels;

    use super::*;

    #[test]
    fn settings_survive() {
        let span = Span::from_secs;
        let full = TopicSettings {
            max_delay: Some(span(1)),
            rate_cap: Some(2),
            jitter: Some(span(3)),
            catch_up: CatchUp::SkipOlder(span(4)),
            levels: Some(DelayLevels::default()),
            check: Some(CheckPolicy { first: span(5), interval: span(6), max: 7 }),
            paused: true,
            stamps: Stamps::Log,
            batch_bytes_max: Some(9),
            kept: [("a", ""), ("flush.ms", "12")]
                .map(|(name, text)| (name.into(), text.into()))
                .into(),
            ..TopicSettings::default()
        };
        let spread = CatchUp::Spread(span(8));
        let others = [CatchUp::All, CatchUp::Latest, spread]
            .map(|catch_up| TopicSettings { catch_up, ..TopicSettings::default() });
        for settings in others.into_iter().chain([full]) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &settings);
            let mut read = TopicSettings::default();
            let mut rest = bytes.as_slice();
            assert_eq!(decode(&mut rest, &mut read), Ok(()));
            assert_eq!((read, rest), (settings, &[][..]));
            for length in 0..bytes.len() {
                let mut read = TopicSettings::default();
                assert_eq!(decode(&mut bytes.split_at(length).0, &mut read), Err(Malformed));
            }
        }
    }
}
