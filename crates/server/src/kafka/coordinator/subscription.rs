//! What consumers say about themselves when they join: the topics they want. The coordinator hands
//! it on unread; only who wants to forget what was committed has to know it.

/// Topics that are looked at in one subscription.
const TOPICS_MAX: usize = 100_000;

/// Whether a consumer that said this wants that topic. Bytes that are no subscription want nothing.
pub(super) fn wants(metadata: &[u8], topic: &str) -> bool {
    let mut rest = metadata;
    let (Some(_version), Some(count)) = (number::<2>(&mut rest), number::<4>(&mut rest)) else {
        return false;
    };
    let Ok(count) = usize::try_from(i32::from_be_bytes(count)) else { return false };
    for _ in 0..count.min(TOPICS_MAX) {
        match text(&mut rest) {
            Some(name) if name == topic.as_bytes() => return true,
            Some(_) => {}
            None => return false,
        }
    }
    false
}

fn number<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (number, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*number)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(i16::from_be_bytes(number::<2>(rest)?)).ok()?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subscription(topics: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0, 1];
        bytes.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
        for topic in topics {
            bytes.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
            bytes.extend(topic.as_bytes());
        }
        bytes.extend((-1i32).to_be_bytes());
        bytes
    }

    #[test]
    fn a_topic_is_wanted_if_it_is_named() {
        let bytes = subscription(&["orders", "", "stock"]);
        for (topic, wanted) in [("orders", true), ("stock", true), ("order", false)] {
            assert_eq!(wants(&bytes, topic), wanted, "{topic}");
        }
    }

    #[test]
    fn half_a_subscription_wants_only_what_it_names() {
        let bytes = subscription(&["orders", "stock"]);
        assert!(wants(&bytes[..16], "orders"));
        assert!(!wants(&bytes[..16], "stock"));
        assert!(!wants(&[0, 1, 0xff, 0xff, 0xff, 0xff], "orders"));
        assert!(!wants(&[0, 1, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], "orders"));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _wanted = wants(&bytes, "orders");
        }
    }
}
