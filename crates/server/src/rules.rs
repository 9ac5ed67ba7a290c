//! Every route with what it takes to ask there, for whoever checks that nothing is left open.

use std::ops::RangeInclusive;

use crate::access::{Operation, Scope};
use crate::grpc::Method;
use crate::http::{ROUTES, Route};
use crate::kafka::{SERVED, Served};

/// A route and its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// The method.
    pub method: &'static str,
    /// The path, with its variable parts in braces.
    pub path: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// The verb that must have been granted.
    pub verb: &'static str,
    /// What the verb must have been granted on: `open`, `whole`, `anything`, `topic`, `group`,
    /// `producer_group`, `found`, `content` or `visible`.
    pub scope: &'static str,
}

/// The names of all operations there are, on whatever listener.
#[must_use]
pub fn operations() -> Vec<&'static str> {
    Operation::ALL.iter().map(|operation| operation.name()).collect()
}

/// The rules of all routes of the HTTP listener.
#[must_use]
pub fn route_rules() -> Vec<RouteRule> {
    let of = |route: &'static Route| rule(route.method.as_str(), route.path, route.operation);
    ROUTES.iter().map(of).collect()
}

/// The rules of all methods of gRPC.
#[must_use]
pub fn method_rules() -> Vec<RouteRule> {
    Method::ALL.iter().map(|method| rule("POST", method.path(), method.operation())).collect()
}

/// An API of the Kafka listener and its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaRule {
    /// Its number.
    pub key: i16,
    /// Its name.
    pub name: &'static str,
    /// The versions that are answered.
    pub versions: RangeInclusive<i16>,
    /// The verb that must have been granted.
    pub verb: &'static str,
    /// As that of a [`RouteRule`].
    pub scope: &'static str,
}

/// The rules of all APIs of the Kafka listener.
#[must_use]
pub fn kafka_rules() -> Vec<KafkaRule> {
    let of = |served: &Served| KafkaRule {
        key: served.key,
        name: served.name,
        versions: served.versions.clone(),
        verb: served.rule.permission.verb(),
        scope: scope(served.rule.scope),
    };
    SERVED.iter().map(of).collect()
}

fn rule(method: &'static str, path: &'static str, operation: Operation) -> RouteRule {
    let rule = operation.rule();
    let (verb, scope) = (rule.permission.verb(), scope(rule.scope));
    RouteRule { method, path, operation: operation.name(), verb, scope }
}

const fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Open => "open",
        Scope::Whole => "whole",
        Scope::Anything => "anything",
        Scope::Topic => "topic",
        Scope::Group => "group",
        Scope::ProducerGroup => "producer_group",
        Scope::Found => "found",
        Scope::Content => "content",
        Scope::Visible => "visible",
    }
}
