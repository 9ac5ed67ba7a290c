//! The document is whole: every route, every code, every reference.

use std::collections::{BTreeSet, HashSet};

use punctual_api::Code;
use punctual_model::limits::DELAY_MAX;
use serde_json::Value;

use super::*;
use crate::http::routes::ROUTES;

fn whole() -> Value {
    write::document(&Numbers::new(DELAY_MAX), true)
}

/// Calls `visit` with every object of the document.
fn walk<'a>(value: &'a Value, visit: &mut impl FnMut(&'a serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            visit(fields);
            fields.values().for_each(|value| walk(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| walk(value, visit)),
        _ => {}
    }
}

#[test]
fn every_route_is_in_the_document_and_nothing_else_is() {
    let document = whole();
    for route in ROUTES {
        let method = route.method.as_str().to_lowercase();
        let operation = &document["paths"][route.path][method.as_str()];
        assert!(operation["operationId"].is_string(), "{} {}", route.method, route.path);
        assert!(operation["responses"].as_object().unwrap().len() > 2, "{}", route.path);
    }
    let mut operations = 0;
    for place in document["paths"].as_object().unwrap().values() {
        operations += place.as_object().unwrap().keys().filter(|key| *key != "parameters").count();
    }
    assert_eq!(operations, ROUTES.len());
}

#[test]
fn no_two_operations_have_the_same_name() {
    let document = whole();
    let mut names = HashSet::new();
    walk(&document["paths"], &mut |fields| {
        if let (Some(Value::String(name)), true) =
            (fields.get("operationId"), fields.contains_key("responses"))
        {
            assert!(names.insert(name.clone()), "{name}");
        }
    });
    assert_eq!(names.len(), ROUTES.len());
}

#[test]
fn every_link_leads_to_an_operation() {
    let document = whole();
    let (mut names, mut targets) = (HashSet::new(), Vec::new());
    walk(&document["paths"], &mut |fields| {
        if let Some(name) = fields.get("operationId").and_then(Value::as_str) {
            match fields.contains_key("responses") {
                true => drop(names.insert(name)),
                false => targets.push(name),
            }
        }
    });
    assert!(!targets.is_empty());
    assert!(targets.iter().all(|target| names.contains(target)), "{targets:?}");
}

#[test]
fn every_reference_resolves() {
    let document = whole();
    let mut references = BTreeSet::new();
    walk(&document, &mut |fields| {
        references.extend(fields.get("$ref").and_then(Value::as_str));
    });
    for reference in &references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let shapes = document["components"]["schemas"].as_object().unwrap();
    for name in shapes.keys() {
        let reference = format!("#/components/schemas/{name}");
        assert!(references.contains(reference.as_str()), "nothing is a {name}");
    }
}

#[test]
fn every_code_is_told_where_it_is_given() {
    let document = whole();
    let all = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let all: HashSet<&str> = all.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(Code::ALL.iter().all(|code| all.contains(code.as_str())));
    let mut told = HashSet::new();
    walk(&document["paths"], &mut |fields| {
        let words = fields.get("properties").and_then(|fields| fields["code"]["enum"].as_array());
        told.extend(words.into_iter().flatten().filter_map(Value::as_str));
    });
    // No operation gives these: there was none, or it was not known which.
    let without = [Code::RouteNotFound, Code::MethodNotAllowed];
    for code in Code::ALL.iter().filter(|code| !without.contains(code)) {
        assert!(told.contains(code.as_str()), "no operation says {}", code.as_str());
    }
}

#[test]
fn nothing_unknown_is_taken() {
    let document = whole();
    for (name, shape) in document["components"]["schemas"].as_object().unwrap() {
        let asked = name.ends_with("Asked") || name.ends_with("Change") || name.starts_with("New");
        if asked && shape["type"] == "object" {
            assert_eq!(shape["additionalProperties"], false, "{name}");
        }
    }
}

#[test]
fn limits_are_those_of_the_model() {
    let document = whole();
    let shapes = &document["components"]["schemas"];
    assert_eq!(shapes["NewBatch"]["properties"]["messages"]["maxItems"], 10_000);
    let longer = write::document(&Numbers::new(punctual_model::limits::DELAY_CEILING), true);
    assert_ne!(shapes["NewMessage"], longer["components"]["schemas"]["NewMessage"]);
}
