//! Does the table of errors say what the codes say?

use std::collections::BTreeMap;

use punctual_api::Code;

const TABLE: &str = include_str!("../../../docs/ERRORS.md");

/// The codes of the table with their statuses and the rest of their lines.
fn rows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        let (code, rest) = cells.split_first()?;
        Some((code.trim_end_matches('`'), rest.to_vec()))
    };
    TABLE.lines().filter_map(row).collect()
}

#[test]
fn every_code_is_in_the_table_and_nothing_else_is() {
    let rows = rows();
    for code in Code::ALL {
        let row = rows.get(code.as_str());
        let row = row.unwrap_or_else(|| panic!("{} is not in the table", code.as_str()));
        assert_eq!(row[0], code.status().to_string(), "{}", code.as_str());
        assert!(row.len() >= 3 && row[1..].iter().all(|cell| cell.len() > 5), "{row:?}");
    }
    assert_eq!(rows.len(), Code::ALL.len(), "the table has codes that are not given out");
    let lines = TABLE.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(lines, rows.len(), "no code is in the table twice");
}

#[test]
fn what_may_succeed_later_says_so() {
    for code in Code::ALL.iter().filter(|code| code.is_retriable()) {
        assert!([408, 429, 503, 507].contains(&code.status()), "{}", code.as_str());
    }
}
