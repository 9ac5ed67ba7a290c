//! The proof that no foreign web page asks: names this server answers to, and origins.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, Method, Uri, header};
use punctual_api::{Code, Problem};

/// The names this server answers to. A name that a foreign page made to point here is not one.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(listen: SocketAddr, more: &[String]) -> Self {
        let mut names = vec!["localhost".into(), "127.0.0.1".into(), "[::1]".into()];
        names.push(match listen {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        });
        names.extend_from_slice(more);
        Self(names)
    }

    /// Refuses a request to another name, and one that a page of another origin made.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        let authority = match uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => headers.get(header::HOST).and_then(|host| host.to_str().ok()),
        };
        let known = authority.is_some_and(|authority| {
            let name = name_of(authority);
            self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
        });
        if !known {
            return Err(Code::HostNotAllowed.into());
        }
        if method.is_safe() {
            return Ok(());
        }
        match headers.get(header::ORIGIN) {
            Some(origin) if !same_origin(origin, authority) => Err(Code::CrossOrigin.into()),
            _ => Ok(()),
        }
    }
}

/// The name without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn same_origin(origin: &HeaderValue, authority: Option<&str>) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.zip(authority).is_some_and(|((_, origin), own)| origin.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, host: &'static str, origin: Option<&'static str>) -> Option<Code> {
        let hosts = Hosts::new(([127, 0, 0, 1], 7070).into(), &["broker.test".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        hosts.check(&method, &Uri::from_static("/"), &headers).err().map(|problem| problem.code)
    }

    #[test]
    fn only_its_own_names_are_answered() {
        for host in ["localhost", "LocalHost:7070", "127.0.0.1:1", "[::1]:7070", "broker.test"] {
            assert_eq!(check(Method::GET, host, None), None, "{host}");
        }
        for host in ["evil.test", "evil.test:7070", "", "localhost.evil.test", "127.0.0.1.evil"] {
            assert_eq!(check(Method::GET, host, None), Some(Code::HostNotAllowed), "{host}");
        }
    }

    #[test]
    fn g45_a_foreign_page_changes_nothing() {
        let own = "localhost:7070";
        assert_eq!(check(Method::POST, own, Some("http://localhost:7070")), None);
        for origin in ["http://evil.test", "null", "http://localhost:8080"] {
            let refused = check(Method::POST, own, Some(origin));
            assert_eq!(refused, Some(Code::CrossOrigin), "{origin}");
        }
    }
}
