//! The `punctual` binary: the server, and every client command.
//!
//! Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 wrong usage.

mod args;
mod serve;
mod client;
mod commands;
mod generate;
mod output;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way too, with the code 0. Nobody to read them is fine.
            let _unread = error.print().is_err();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match arguments.command {
        Command::Serve(options) => return serve::run(options),
        Command::Config { command } => serve::config(command),
        Command::Generate(what) => generate::run(&what),
        Command::Client(command) => return commands::run(&arguments.client, *command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failure(&error),
    }
}
