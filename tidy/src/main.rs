//! Runs every check over a checkout (the first argument, else the working directory) and says what
//! it found, one finding a line.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let findings = tidy::check(&root)?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(ExitCode::SUCCESS),
        count => {
            println!("tidy: {count} findings");
            Ok(ExitCode::FAILURE)
        }
    }
}
