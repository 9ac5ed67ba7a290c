//! Export and import: one JSON object a line.

use super::{Bounds, Named, Schema, count, id, list, named, object, span, text, time, truth, word};
use crate::code::Code;
use crate::schema::message::with_answered;

pub(super) fn components(_bounds: &Bounds) -> Named {
    vec![("ExportLine", line()), ("ExportEnd", end()), ("Imported", imported())]
}

fn line() -> Schema {
    let shape = object()
        .with("id", id())
        .may("own_id", text())
        .with("deliver_at", time())
        .may("paused", truth())
        .may("remaining", span())
        .may("partition", count())
        .with("version", count())
        .may("repeat", named("Repeat"));
    with_answered(shape).about("A pending message.")
}

fn end() -> Schema {
    object()
        .with("next", text().about("The cursor to go on with; null at the end.").or_null())
        .with("exported", count().about("How many messages came before."))
        .about("The last line of an export.")
}

fn imported() -> Schema {
    let failed = object()
        .with("line", count().about("Counted from 1."))
        .with("code", word(Code::ALL.iter().map(|code| code.as_str())))
        .with("detail", text());
    object()
        .with("imported", count())
        .with("duplicates", count())
        .with("failed_count", count())
        .with("failed", list(failed).about("The first of those that were refused."))
}
