//! How durations and times are written: every accepted form, every refusal, and that what is
//! written is read back.

use proptest::prelude::*;
use punctual_model::time::{SpanError, TimestampError};
use punctual_model::{Span, Timestamp};

fn at_millis(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis).expect("the tables stay within year 9999")
}

#[test]
fn durations_that_are_read() {
    for (text, millis) in [
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("40d", 3_456_000_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("90m", 5_400_000),
        ("1m5ms", 60_005),
        ("0s", 0),
        ("0ms", 0),
        ("007s", 7000),
        ("PT30S", 30_000),
        ("P1DT2H", 93_600_000),
        ("P7D", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("PT0.5S", 500),
        ("PT1.250S", 1250),
        ("PT1.0010000S", 1001),
        ("PT0S", 0),
        ("0", 0),
        ("1500", 1500),
        ("18446744073709551615", u64::MAX),
        ("18446744073709551615ms", u64::MAX),
        ("213503982334d14h25m51s615ms", u64::MAX),
    ] {
        assert_eq!(text.parse(), Ok(Span::from_millis(millis)), "{text}");
    }
}

#[test]
fn durations_that_are_refused() {
    use SpanError::{Calendar, Malformed, Negative, TooFine, TooLong, UnitOrder, UnknownUnit};
    for (text, error) in [
        ("", Malformed),
        (" ", Malformed),
        ("s", Malformed),
        ("30 s", Malformed),
        (" 30s", Malformed),
        ("30s ", Malformed),
        ("+30s", Malformed),
        ("+30", Malformed),
        ("1.5s", Malformed),
        ("1.5", Malformed),
        ("1h30", Malformed),
        ("1e3", UnknownUnit),
        ("soon", Malformed),
        ("30\u{0}s", Malformed),
        ("\u{663}s", Malformed),
        ("3\u{ff53}", Malformed),
        ("3µs", Malformed),
        ("-30s", Negative),
        ("-1", Negative),
        ("-PT30S", Negative),
        ("PT-30S", Negative),
        ("1w", UnknownUnit),
        ("1us", UnknownUnit),
        ("1S", UnknownUnit),
        ("1sec", UnknownUnit),
        ("30m1h", UnitOrder),
        ("1s1s", UnitOrder),
        ("5ms1s", UnitOrder),
        ("P", Malformed),
        ("PT", Malformed),
        ("P1DT", Malformed),
        ("PD", Malformed),
        ("P1", Malformed),
        ("PT1.S", Malformed),
        ("PT.5S", Malformed),
        ("PT1.2.3S", Malformed),
        ("PT0.5H", Malformed),
        ("P0.5D", Malformed),
        ("pt30s", Malformed),
        ("PT1DT1H", UnknownUnit),
        ("P1H", UnknownUnit),
        ("PT1D", UnknownUnit),
        ("P1Y", Calendar),
        ("P1M", Calendar),
        ("P1W", Calendar),
        ("PT1S1M", UnitOrder),
        ("P1D1D", UnitOrder),
        ("PT0.5S1S", UnitOrder),
        ("PT0.0005S", TooFine),
        ("18446744073709551616", TooLong),
        ("18446744073709552s", TooLong),
        ("213503982334d14h25m51s616ms", TooLong),
        ("99999999999999999999999999d", TooLong),
    ] {
        assert_eq!(text.parse::<Span>(), Err(error), "{text:?}");
    }
}

#[test]
fn times_that_are_read() {
    for (text, millis) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-15T10:00:00Z", 1_794_736_800_000),
        ("2026-11-15t10:00:00z", 1_794_736_800_000),
        ("2026-11-15T18:00:00+08:00", 1_794_736_800_000),
        ("2026-11-15T05:30:00-04:30", 1_794_736_800_000),
        ("2026-11-15T10:00:00-00:00", 1_794_736_800_000),
        ("2026-11-15T10:00:00.5Z", 1_794_736_800_500),
        ("2026-11-15T10:00:00.123Z", 1_794_736_800_123),
        // Never early: what is finer than a millisecond becomes the next one.
        ("2026-11-15T10:00:00.1230001Z", 1_794_736_800_124),
        ("2026-11-15T10:00:00.9999Z", 1_794_736_801_000),
        ("2026-11-15T10:00:00.000000000000000000001Z", 1_794_736_800_001),
        ("2026-11-15T10:00:00.120000000000Z", 1_794_736_800_120),
        ("2028-02-29T00:00:00Z", 1_835_395_200_000),
        ("1969-12-31T23:00:00-01:00", 0),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("0", 0),
        ("1794736800000", 1_794_736_800_000),
        ("253402300799999", 253_402_300_799_999),
    ] {
        assert_eq!(text.parse(), Ok(at_millis(millis)), "{text}");
    }
}

#[test]
fn times_that_are_refused() {
    use TimestampError::{LeapSecond, Malformed, MissingZone, NoSuchTime, OutOfRange};
    for (text, error) in [
        ("", Malformed),
        ("tomorrow", Malformed),
        ("2026-11-15", Malformed),
        ("2026-11-15T10:00Z", Malformed),
        ("2026-11-15 10:00:00Z", Malformed),
        ("20261115T100000Z", Malformed),
        ("2026-11-15T10:00:00.Z", Malformed),
        ("2026-11-15T10:00:00,5Z", Malformed),
        ("2026-11-15T10:00:00+0800", Malformed),
        ("2026-11-15T10:00:00+08", Malformed),
        ("2026-11-15T10:00:00 08:00", Malformed),
        ("2026-11-15T10:00:00Z[UTC]", Malformed),
        ("2026-11-15T10:00:00+0a:00", Malformed),
        ("2026-11-15T10:00:00Z ", Malformed),
        ("+2026-11-15T10:00:00Z", Malformed),
        ("2026-11-15T10:00:0\u{663}Z", Malformed),
        ("1794736800.5", Malformed),
        ("+5", Malformed),
        ("2026-11-15T10:00:00", MissingZone),
        ("2026-11-15T10:00:00.5", MissingZone),
        ("2026-02-29T10:00:00Z", NoSuchTime),
        ("2026-13-01T10:00:00Z", NoSuchTime),
        ("2026-00-01T10:00:00Z", NoSuchTime),
        ("2026-11-31T10:00:00Z", NoSuchTime),
        ("2026-11-15T24:00:00Z", NoSuchTime),
        ("2026-11-15T10:60:00Z", NoSuchTime),
        ("2026-11-15T10:00:61Z", NoSuchTime),
        ("2026-11-15T10:00:00+24:00", NoSuchTime),
        ("2026-11-15T10:00:00+08:60", NoSuchTime),
        ("2016-12-31T23:59:60Z", LeapSecond),
        ("1969-12-31T23:59:59Z", OutOfRange),
        ("1969-12-31T23:59:59.9999Z", OutOfRange),
        ("0000-01-01T00:00:00Z", OutOfRange),
        ("9999-12-31T23:59:59.9991Z", OutOfRange),
        ("9999-12-31T23:59:59-01:00", OutOfRange),
        ("253402300800000", OutOfRange),
        ("99999999999999999999999", OutOfRange),
        ("-1", OutOfRange),
    ] {
        assert_eq!(text.parse::<Timestamp>(), Err(error), "{text:?}");
    }
}

#[test]
fn the_written_forms() {
    assert_eq!(at_millis(1_794_736_800_000).to_string(), "2026-11-15T10:00:00.000Z");
    assert_eq!(Timestamp::MIN.to_string(), "1970-01-01T00:00:00.000Z");
    assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
    assert_eq!(Span::from_millis(5_400_000).to_string(), "1h30m");
    assert_eq!(Span::from_millis(93_784_005).to_string(), "1d2h3m4s5ms");
    assert_eq!(Span::ZERO.to_string(), "0s");
}

/// Texts made of the characters that the two grammars know get further than random ones.
fn near_misses() -> impl Strategy<Value = String> {
    prop_oneof![".{0,40}", "[-+0-9PTDHMSYWdhmsZz:., ]{0,40}", "[0-9]{4}-[0-9]{2}-[0-9]{2}T.{0,20}"]
}

proptest! {
    #[test]
    fn a_span_survives_its_text(millis in prop_oneof![any::<u64>(), 0..10_000_000_u64]) {
        prop_assert_eq!(Span::from_millis(millis).to_string().parse(), Ok(Span::from_millis(millis)));
    }

    #[test]
    fn a_timestamp_survives_its_text(millis in 0..=Timestamp::MAX.as_millis()) {
        let at = at_millis(millis);
        prop_assert_eq!(at.to_string().parse(), Ok(at));
        prop_assert_eq!(millis.to_string().parse(), Ok(at));
    }

    #[test]
    fn hostile_text_never_panics(text in near_misses()) {
        if let Ok(span) = text.parse::<Span>() {
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
        if let Ok(at) = text.parse::<Timestamp>() {
            prop_assert_eq!(at.to_string().parse(), Ok(at));
        }
    }
}
