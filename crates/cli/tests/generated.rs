//! Are the completions and the manual pages good for anything?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "the support module serves several tests, and helpers of tests may stop them"
)]

mod command_support;
mod process_support;

use std::process::Command;

use command_support::{punctual, text};
use tempfile::TempDir;

fn completions(shell: &str) -> String {
    let output = punctual().args(["completions", shell]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// What bash offers for a line.
fn offered(words: &[&str]) -> Vec<String> {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("punctual.bash");
    std::fs::write(&file, completions("bash")).unwrap();
    let script = r#"source "$COMPLETIONS"
        COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
        $(complete -p punctual | sed 's/.*-F \([^ ]*\).*/\1/') punctual "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .env("COMPLETIONS", &file)
        .output()
        .expect("bash");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn every_shell_gets_completions() {
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef punctual"),
        ("fish", "complete -c punctual"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = completions(shell);
        assert!(script.contains(mark) && script.contains("deliver-now"), "{shell}");
    }
    let unknown = punctual().args(["completions", "tcsh"]).output().expect("it runs");
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn bash_completes_commands_and_flags() {
    assert_eq!(offered(&["punctual", "top"]), ["topics", "top"]);
    assert_eq!(offered(&["punctual", "topics", "cre"]), ["create"]);
    let flags = offered(&["punctual", "send", "--de"]);
    assert_eq!(flags, ["--delay"]);
    let states = offered(&["punctual", "list", "--state", ""]);
    assert_eq!(states, ["scheduled", "paused"]);
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = TempDir::new().unwrap();
    let output = punctual().args(["man", "--dir"]).arg(directory.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let help = text(&punctual().arg("--help").output().expect("it runs").stdout);
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let commands: Vec<&str> =
        commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 25, "{commands:?}");
    for command in commands.iter().filter(|command| **command != "help") {
        let path = directory.path().join(format!("punctual-{command}.1"));
        let page =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        for part in [".TH", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(part), "{command} lacks {part}");
        }
    }
    for name in ["punctual.1", "punctual-topics-create.1", "punctual-dead-redrive.1"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
    let main = punctual().arg("man").output().expect("it runs").stdout;
    assert_eq!(main, std::fs::read(directory.path().join("punctual.1")).unwrap());
}
