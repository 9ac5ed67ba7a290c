//! A message as a record: the same headers as in the broker's own logs, but for the id, which can be
//! left out.

use punctual_model::headers::{DUE_HEADER, ID_HEADER, NULL_HEADER, OWN_ID_HEADER, SERIES_HEADER};
use punctual_model::ports::Armed;
use punctual_model::{Link, Timestamp};
use rdkafka::message::{Header, OwnedHeaders};

/// The body, unless its sender gave none at all.
pub(super) fn body(armed: &Armed) -> Option<&[u8]> {
    let message = &armed.message;
    let is_null =
        message.body.is_empty() && message.headers.iter().any(|header| header.name == NULL_HEADER);
    (!is_null).then_some(&*message.body)
}

/// The sender's headers, then ours; our names are ours alone.
pub(super) fn headers(armed: &Armed, id_header: bool) -> OwnedHeaders {
    let extra = armed.extra.as_deref();
    let own_id = extra.and_then(|extra| extra.own_id.as_ref()).map(|own_id| &*own_id.text);
    let series = extra.and_then(|extra| extra.series).and_then(Link::id);
    let mut headers = OwnedHeaders::new_with_capacity(armed.message.headers.len() + 4);
    for header in &armed.message.headers {
        let ours = match header.name.as_str() {
            ID_HEADER | DUE_HEADER | NULL_HEADER => true,
            OWN_ID_HEADER => own_id.is_some(),
            SERIES_HEADER => series.is_some(),
            _ => false,
        };
        if !ours {
            let value = Some(header.value.as_ref());
            headers = headers.insert(Header { key: &header.name, value });
        }
    }
    if let Some(own_id) = own_id {
        headers = headers.insert(Header { key: OWN_ID_HEADER, value: Some(own_id) });
    }
    if let Some(series) = series {
        headers = headers.insert(Header { key: SERIES_HEADER, value: Some(&series.encode()[..]) });
    }
    if id_header {
        headers = headers.insert(Header { key: ID_HEADER, value: Some(&armed.id().encode()[..]) });
    }
    let due = asked_for(armed).as_millis().to_string();
    headers.insert(Header { key: DUE_HEADER, value: Some(due.as_str()) })
}

/// When it was to be delivered: one that only the broker has moved was due where it began.
fn asked_for(armed: &Armed) -> Timestamp {
    let changed = armed.extra.as_deref().and_then(|extra| extra.changed);
    match changed {
        Some(changed) if changed.version == 1 && !changed.first.due.is_parked() => {
            changed.first.due
        }
        _ => armed.key.due,
    }
}

/// A time as Kafka has it.
pub(super) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use punctual_model::ports::Origin;
    use punctual_model::{
        Basis, Changed, Extra, Header as Given, Key, Message, OwnId, Partition, Sequence, Span,
        TopicId,
    };
    use rdkafka::message::Headers;

    use super::*;

    fn armed() -> Armed {
        let header = |name: &str, value: &'static str| Given {
            name: name.to_owned(),
            value: Bytes::from_static(value.as_bytes()),
        };
        let due = Timestamp::from_millis_saturating(1_800_000_000_000);
        Armed {
            key: Key { due, sequence: Sequence::new(7).unwrap() },
            topic: TopicId::new(3).unwrap(),
            partition: Partition::new(1).unwrap(),
            basis: Basis::Date,
            message: Message {
                headers: vec![
                    header("trace", "a"),
                    header("punctual-id", "forged"),
                    header("trace", "b"),
                    header("", ""),
                ],
                ..Message::default()
            },
            extra: None,
            origin: Origin(0),
        }
    }

    fn shown(armed: &Armed, id_header: bool) -> Vec<(String, String)> {
        let headers = headers(armed, id_header);
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        headers.iter().map(|header| (header.key.to_owned(), text(header.value))).collect()
    }

    fn pair(name: &str, value: impl Into<String>) -> (String, String) {
        (name.to_owned(), value.into())
    }

    #[test]
    fn the_headers_of_the_sender_stay_and_ours_cannot_be_forged() {
        let armed = armed();
        let sent = [pair("trace", "a"), pair("trace", "b"), pair("", "")];
        let due = pair(DUE_HEADER, "1800000000000");
        let id = pair(ID_HEADER, armed.id().to_string());
        assert_eq!(shown(&armed, true), [&sent[..], &[id, due.clone()]].concat());
        assert_eq!(shown(&armed, false), [&sent[..], &[due]].concat());
    }

    #[test]
    fn a_message_that_was_put_off_tells_when_it_was_due() {
        let mut armed = armed();
        let first = armed.key;
        armed.key.due = armed.key.due.saturating_add(Span::from_secs(60));
        let mut extra = Extra {
            changed: Some(Changed { first, version: 1 }),
            own_id: Some(OwnId { text: "mine".into(), print: 0 }),
            ..Extra::default()
        };
        armed.extra = Some(Box::new(extra.clone()));
        let headers = shown(&armed, false);
        assert_eq!(headers[3..], [pair(OWN_ID_HEADER, "mine"), pair(DUE_HEADER, "1800000000000")]);
        // Somebody has asked for another time.
        extra.changed = Some(Changed { first, version: 2 });
        armed.extra = Some(Box::new(extra));
        assert_eq!(shown(&armed, false)[4], pair(DUE_HEADER, "1800000060000"));
    }

    #[test]
    fn nothing_at_all_is_not_the_same_as_an_empty_body() {
        let mut armed = armed();
        assert_eq!(body(&armed), Some(&[][..]));
        armed.message.headers.push(Given { name: NULL_HEADER.into(), value: Bytes::new() });
        assert_eq!(body(&armed), None);
    }
}
