//! Does the program tell its configuration, all of it but the secrets, and what is wrong with one?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "the support module serves several tests, and a failed set-up may stop one"
)]

mod command_support;
mod process_support;

use std::path::{Path, PathBuf};
use std::process::Output;

use command_support::{punctual, text};
use tempfile::TempDir;

fn config(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    punctual().arg("config").args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn write(directory: &TempDir, content: &str) -> PathBuf {
    let path = directory.path().join("punctual.toml");
    std::fs::write(&path, content).unwrap();
    path
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_reference_is_up_to_date() {
    let printed = config(&["reference"], &[]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CONFIGURATION.md");
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(
        text(&printed.stdout) == kept,
        "docs/CONFIGURATION.md is not what `punctual config reference` prints"
    );
}

#[test]
fn what_is_printed_is_a_good_file_that_says_who_wrote_what() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "[http]\nhosts = ['a', 'b']\nidle_timeout = \"5s\"\n");
    let variables = [("PUNCTUAL_LOG__FORMAT", "json"), ("PUNCTUAL_HTTP__IDLE_TIMEOUT", "6s")];
    let arguments = ["print", "--config", name(&path), "--data", "odd \"name\"\t"];
    let printed = config(&arguments, &variables);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let shown = text(&printed.stdout);
    for line in [
        "format = \"json\" # the environment variable PUNCTUAL_LOG__FORMAT".to_owned(),
        "idle_timeout = \"6s\" # the environment variable PUNCTUAL_HTTP__IDLE_TIMEOUT".to_owned(),
        format!("hosts = \"a,b\" # {}:2", name(&path)),
        "level = \"info\" # the default".to_owned(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
    let again = write(&directory, &shown);
    let checked = config(&["check", name(&again)], &[]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let reprinted = config(&["print", "--config", name(&again)], &[]);
    let values = |shown: &str| -> Vec<String> {
        shown.lines().map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(&text(&reprinted.stdout)), values(&shown));
}

#[test]
fn g47_secrets_are_not_printed_and_have_no_flag() {
    const TOKEN: &str = "admin.open-sesame-open-sesame";
    let directory = TempDir::new().unwrap();
    let path = write(&directory, &format!("[push]\ncheck_secret = '{TOKEN}'\n"));
    let variables = [("PUNCTUAL_AUTH__ADMIN_TOKEN", TOKEN)];
    let printed = config(&["print", "--config", name(&path)], &variables);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let shown = text(&printed.stdout);
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(shown.contains("# admin_token = \"(hidden)\" # the environment variable"), "{shown}");
    let help = punctual().args(["serve", "--help"]).output().unwrap();
    let help = text(&help.stdout);
    // What a client may say of itself comes behind that.
    let own = help.split("\nConnection and output:").next().unwrap();
    assert!(own.contains("--data") && !own.contains("secret") && !own.contains("token"), "{own}");
    // A file that is not well-formed is not quoted either.
    for content in
        [format!("[auth]\nadmin_token = '{TOKEN}"), format!("[auth]\nadmin_token = {TOKEN}")]
    {
        let path = write(&directory, &content);
        let checked = config(&["check", name(&path)], &[]);
        assert_eq!(checked.status.code(), Some(1));
        assert!(!text(&checked.stderr).contains("sesame"), "{}", text(&checked.stderr));
    }
}

#[test]
fn a_bad_file_is_refused_with_its_line() {
    let directory = TempDir::new().unwrap();
    for (content, expected) in [
        (
            "[http]\nlisten_on = 'x'",
            ":2: there is no key http.listen_on; did you mean http.listen?",
        ),
        ("\n[store]\nlisten = 'x'", ":3: there is no key store.listen; did you mean http.listen?"),
        ("[http]\n\nidle_timeout = 'soon'", ":3)"),
        ("[http]\nlisten = '0.0.0.0:7070'", "auth.enabled"),
        ("[http\n", ":1 is not TOML"),
    ] {
        let path = write(&directory, content);
        for arguments in [&["check", name(&path)][..], &["print", "--config", name(&path)]] {
            let checked = config(arguments, &[]);
            assert_eq!(checked.status.code(), Some(1), "{content}");
            let told = text(&checked.stderr);
            assert!(told.contains(expected), "{content}: {told}");
        }
    }
    let missing = config(&["check", "no such file"], &[]);
    assert_eq!(missing.status.code(), Some(1));
    let variables = [("PUNCTUAL_HTTP_LISTEN", "127.0.0.1:1")];
    let told = text(&config(&["print"], &variables).stderr);
    assert!(told.contains("did you mean PUNCTUAL_HTTP__LISTEN"), "{told}");
}
