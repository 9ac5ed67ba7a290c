//! The content codings that are spoken, and how a request names them.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue};
use punctual_api::{Code, Problem};

/// How bytes were made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As by gzip.
    Gzip,
    /// As by zstd.
    Zstd,
}

impl Coding {
    /// Best first.
    pub(crate) const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

    /// Its name in headers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Its name as the value of a header.
    pub(crate) const fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    fn named(name: &str) -> Option<Self> {
        // Old clients put an x before it.
        let name = if name.eq_ignore_ascii_case("x-gzip") { "gzip" } else { name };
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name()))
    }

    /// The coding that the caller likes best of those there are; `None` for the bytes as they are.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut wishes = Wishes::default();
        for value in headers.get_all(ACCEPT_ENCODING) {
            for element in value.to_str().unwrap_or_default().split(',') {
                wishes.take(element);
            }
        }
        wishes.best()
    }

    /// The coding of a request's body.
    pub(crate) fn of_body(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let name = match (values.next(), values.next()) {
            (None, _) => return Ok(None),
            (Some(value), None) => value.to_str().unwrap_or_default().trim(),
            (Some(_), Some(_)) => "",
        };
        match Self::named(name) {
            Some(coding) => Ok(Some(coding)),
            None if name.eq_ignore_ascii_case("identity") => Ok(None),
            None => {
                let detail = "content-encoding is gzip or zstd, and only one of them";
                Err(Problem::new(Code::UnsupportedEncoding, detail))
            }
        }
    }
}

/// How much each coding is wanted, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Wishes {
    gzip: Option<u16>,
    zstd: Option<u16>,
    plain: Option<u16>,
    others: Option<u16>,
}

impl Wishes {
    /// Reads one element, such as `gzip;q=0.5`. What is not understood is not wanted.
    fn take(&mut self, element: &str) {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = match parts.find_map(|part| part.strip_prefix(['q', 'Q'])) {
            None => 1000,
            Some(rest) => rest.trim_start().strip_prefix('=').and_then(weight).unwrap_or(0),
        };
        let place = match Coding::named(name) {
            Some(Coding::Gzip) => &mut self.gzip,
            Some(Coding::Zstd) => &mut self.zstd,
            None if name.eq_ignore_ascii_case("identity") => &mut self.plain,
            None if name == "*" => &mut self.others,
            None => return,
        };
        *place = Some(weight);
    }

    fn best(self) -> Option<Coding> {
        let wish = |coding| match coding {
            Coding::Gzip => self.gzip.or(self.others).unwrap_or(0),
            Coding::Zstd => self.zstd.or(self.others).unwrap_or(0),
        };
        // Of equals the first is taken.
        let best = Coding::ALL.into_iter().rev().max_by_key(|coding| wish(*coding))?;
        let wanted = wish(best);
        (wanted > 0 && wanted >= self.plain.unwrap_or(0)).then_some(best)
    }
}

/// A weight from `0` to `1.000`, in thousandths.
fn weight(text: &str) -> Option<u16> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let whole: u16 = match whole {
        "0" => 0,
        "1" => 1000,
        _ => return None,
    };
    let fraction: u16 = format!("{fraction:0<3}").parse().ok().filter(|_| digits)?;
    Some(whole + fraction).filter(|weight| *weight <= 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(text: &'static str) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
        Coding::accepted(&headers)
    }

    #[test]
    fn the_coding_that_is_liked_best_is_taken() {
        for (text, wanted) in [
            ("", None),
            ("gzip", Some(Coding::Gzip)),
            ("GZip", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("zstd", Some(Coding::Zstd)),
            ("gzip, deflate, br", Some(Coding::Gzip)),
            ("gzip, zstd", Some(Coding::Zstd)),
            ("gzip;q=0.8, zstd;q=0.2", Some(Coding::Gzip)),
            ("gzip ; q=0.001", Some(Coding::Gzip)),
            ("gzip;q=0", None),
            ("gzip;q=0.000, *", Some(Coding::Zstd)),
            ("*", Some(Coding::Zstd)),
            ("*;q=0", None),
            ("identity", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip", Some(Coding::Gzip)),
            ("identity, gzip", Some(Coding::Gzip)),
            ("br;q=1.0", None),
            ("gzip;q=2", None),
            ("gzip;q=-1", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=", None),
            (",,;;,gzip;level=1;q=1", Some(Coding::Gzip)),
        ] {
            assert_eq!(accepted(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn several_lines_count_as_one() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0.1"));
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("zstd;q=0.2"));
        assert_eq!(Coding::accepted(&headers), Some(Coding::Zstd));
        assert_eq!(Coding::accepted(&HeaderMap::new()), None);
    }

    #[test]
    fn a_body_has_one_known_coding_or_none() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(text));
            Coding::of_body(&headers).map_err(|problem| problem.code)
        };
        assert_eq!(of("gzip"), Ok(Some(Coding::Gzip)));
        assert_eq!(of(" Zstd "), Ok(Some(Coding::Zstd)));
        assert_eq!(of("identity"), Ok(None));
        for text in ["br", "deflate", "", "gzip, gzip", "gzip,identity"] {
            assert_eq!(of(text), Err(Code::UnsupportedEncoding), "{text:?}");
        }
        assert_eq!(Coding::of_body(&HeaderMap::new()).unwrap(), None);
    }
}
