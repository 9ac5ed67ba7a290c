//! Pages of listings: how much fits one, and where the next one starts.

use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_model::limits::{PAGE_MESSAGES_DEFAULT, PAGE_MESSAGES_MAX};
use punctual_model::{Key, Message, Sequence, Timestamp};

/// Most bytes of messages in one page, so that a page of large messages stays bounded.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;

/// How many messages fit one page: at least one, and no more than so many bytes of them.
pub(crate) fn fitting<'a>(
    messages: impl Iterator<Item = &'a Message>,
    page_bytes_max: usize,
) -> usize {
    let mut bytes = 0usize;
    let within = messages.take_while(|message| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(message.weight()).saturating_add(1);
        is_first || bytes <= page_bytes_max
    });
    within.count()
}

/// The number of messages of a page.
pub(crate) fn take_limit(parameters: &mut Parameters<'_>) -> Result<usize, Problem> {
    let most = u64::try_from(PAGE_MESSAGES_MAX).expect("a small number");
    let limit = parameters.take_number("limit", 1, most)?;
    Ok(limit.map_or(PAGE_MESSAGES_DEFAULT, |limit| {
        usize::try_from(limit).expect("no more than PAGE_MESSAGES_MAX")
    }))
}

/// What the names of those on a list must have in them.
pub(crate) fn take_part(parameters: &mut Parameters<'_>) -> Result<NamePart, Problem> {
    let part = parameters.take("name")?;
    Ok(NamePart(part.map(|part| part.to_ascii_lowercase()).unwrap_or_default()))
}

/// A part of a name, in lower case. Nothing is a part of every name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamePart(String);

impl NamePart {
    /// Whether it is somewhere in the name; capital letters do not matter.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        self.0.is_empty() || name.to_ascii_lowercase().contains(&self.0)
    }
}

/// The place on the timeline where the page before ended.
pub(crate) fn take_cursor(parameters: &mut Parameters<'_>) -> Result<Option<Key>, Problem> {
    let cursor = parameters.take("cursor")?;
    Ok(cursor.map(|cursor| read_cursor(&cursor).ok_or(Code::InvalidCursor)).transpose()?)
}

/// A cursor is the place where the page ended.
pub(crate) fn cursor_of(key: Key) -> String {
    format!("{:x}-{:x}", key.due.as_millis(), key.sequence.get())
}

/// The place that a cursor stands for.
pub(crate) fn read_cursor(text: &str) -> Option<Key> {
    let (due, sequence) = text.split_once('-')?;
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
    };
    let due = Timestamp::from_millis(number(due)?)?;
    Some(Key { due, sequence: Sequence::new(number(sequence)?)? })
}
