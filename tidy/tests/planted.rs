//! Plants each fault that tidy must find into a small checkout, and makes sure that the checkout
//! without faults, and this project itself, have none.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A small checkout, removed when dropped.
struct Checkout(PathBuf);

impl Checkout {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("tidy-{}-{number}", std::process::id()));
        let checkout = Self(root);
        checkout.put("crates/model/Cargo.toml", &manifest("model", "bytes.workspace = true"));
        checkout.put("crates/model/src/lib.rs", "//! Nouns.\n");
        let dependencies = "punctual-model.workspace = true\nrustix = \"1\"";
        checkout.put("crates/engine/Cargo.toml", &manifest("engine", dependencies));
        checkout.put("crates/engine/src/lib.rs", "//! The store.\n");
        checkout
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn findings(&self) -> Vec<String> {
        tidy::check(&self.0).unwrap().iter().map(ToString::to_string).collect()
    }

    /// Exactly one finding, and it says all of `words`.
    #[track_caller]
    fn finds(&self, words: &[&str]) {
        let findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(words.iter().all(|word| findings[0].contains(word)), "{findings:?}");
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn manifest(dir: &str, dependencies: &str) -> String {
    format!(
        "[package]\nname = \"punctual-{dir}\"\n\n[lints]\nworkspace = true\n\n\
         [dependencies]\n{dependencies}\n"
    )
}

fn long(lines: usize) -> String {
    format!("//! Long.\n{}", "// line\n".repeat(lines - 1))
}

#[test]
fn a_clean_checkout_has_no_findings() {
    assert_eq!(Checkout::new().findings(), Vec::<String>::new());
}

#[test]
fn this_project_has_no_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let findings: Vec<String> =
        tidy::check(root).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(findings, Vec::<String>::new());
}

#[test]
fn a_forbidden_edge_is_found_however_it_is_written() {
    for edge in [
        "punctual-engine.workspace = true",
        "punctual-engine = { path = \"../engine\" }",
        "store = { package = \"punctual-engine\", path = \"../engine\" }",
        "\n[dependencies.punctual-engine]\npath = \"../engine\"",
        "\n[dependencies.store]\npackage = \"punctual-engine\"",
        "\n[build-dependencies]\npunctual-engine.workspace = true",
        "\n[target.'cfg(unix)'.dependencies]\npunctual-engine.workspace = true",
    ] {
        let checkout = Checkout::new();
        checkout.put("crates/model/Cargo.toml", &manifest("model", edge));
        checkout.finds(&["crates/model/Cargo.toml:", "`model` must not depend on `engine`"]);
    }
}

#[test]
fn tests_may_depend_on_anything() {
    let checkout = Checkout::new();
    let dependencies = "\n[dev-dependencies]\npunctual-engine.workspace = true\ntokio = \"1\"";
    checkout.put("crates/model/Cargo.toml", &manifest("model", dependencies));
    assert_eq!(checkout.findings(), Vec::<String>::new());
}

#[test]
fn a_runtime_below_the_rim_is_found() {
    for runtime in ["tokio = \"1\"", "tokio-util.workspace = true", "async-io = \"2\""] {
        let checkout = Checkout::new();
        checkout.put("crates/engine/Cargo.toml", &manifest("engine", runtime));
        checkout.finds(&["crates/engine/Cargo.toml:8", "without a runtime"]);
        checkout.put("crates/engine/Cargo.toml", &manifest("engine", ""));
        checkout.put("crates/broker/Cargo.toml", &manifest("broker", runtime));
        assert_eq!(checkout.findings(), Vec::<String>::new());
    }
}

#[test]
fn a_crate_needs_a_place_a_name_and_the_lints() {
    let checkout = Checkout::new();
    checkout.put("crates/extra/Cargo.toml", &manifest("extra", ""));
    checkout.finds(&["crates/extra/Cargo.toml", "no place among the layers"]);

    let checkout = Checkout::new();
    checkout.put("crates/model/Cargo.toml", &manifest("nouns", ""));
    checkout.finds(&["name = \"punctual-model\""]);

    let checkout = Checkout::new();
    checkout.put("crates/model/Cargo.toml", "[package]\nname = \"punctual-model\"\n");
    checkout.finds(&["lints"]);
}

#[test]
fn a_missing_header_is_found() {
    let checkout = Checkout::new();
    checkout.put("crates/model/src/time.rs", "use std::fmt;\n");
    checkout.finds(&["crates/model/src/time.rs:1", "`//!`"]);
}

#[test]
fn names_that_say_nothing_are_found() {
    for path in ["src/utils.rs", "src/helpers/mod.rs", "src/wheel2.rs", "tests/common/mod.rs"] {
        let checkout = Checkout::new();
        checkout.put(&format!("crates/model/{path}"), "//! Things.\n");
        checkout.finds(&[path]);
    }
}

#[test]
fn a_long_file_needs_an_entry_whose_ceiling_only_falls() {
    let checkout = Checkout::new();
    let path = "crates/model/src/long.rs";
    checkout.put(path, &long(600));
    assert_eq!(checkout.findings(), Vec::<String>::new());
    checkout.put(path, &long(700));
    checkout.finds(&[path, "700 production lines, above 600"]);
    checkout.put("tidy/ceilings.txt", &format!("# Long files.\n{path} 700\n"));
    assert_eq!(checkout.findings(), Vec::<String>::new());
    checkout.put(path, &long(701));
    checkout.finds(&[path, "above its ceiling of 700"]);
    checkout.put(path, &long(650));
    checkout.finds(&["tidy/ceilings.txt:2", "lower the ceiling", "to 650"]);
    checkout.put(path, &long(600));
    checkout.finds(&["tidy/ceilings.txt:2", "no entry any more"]);
    checkout.put("tidy/ceilings.txt", "gone.rs 700\n");
    checkout.finds(&["tidy/ceilings.txt:1", "gone.rs is not a source file"]);
    checkout.put("tidy/ceilings.txt", "gone.rs many\n");
    checkout.finds(&["tidy/ceilings.txt:1", "path lines"]);
}

#[test]
fn tests_do_not_count_as_production_lines() {
    let checkout = Checkout::new();
    checkout.put("crates/model/tests/long.rs", &long(900));
    let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", long(500), "// x\n".repeat(300));
    checkout.put("crates/model/src/long.rs", &text);
    assert_eq!(checkout.findings(), Vec::<String>::new());
}

#[test]
fn paths_of_one_machine_are_found() {
    for (head, tail) in [("/ho", "me/ann/x"), ("/ro", "ot/x"), ("/Us", "ers/ann"), ("/wo", "rk/x")]
    {
        let checkout = Checkout::new();
        checkout.put("docs/NOTES.md", &format!("First.\nSee `{head}{tail}`.\n"));
        checkout.finds(&["docs/NOTES.md:2", "a path of one machine"]);
        checkout.put("docs/NOTES.md", &format!("https://example.org{head}{tail}\n"));
        assert_eq!(checkout.findings(), Vec::<String>::new());
    }
}
