//! What is generated from the command line itself: completions for shells, and manual pages.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::{Arguments, Generate};

const NAME: &str = "punctual";

pub(crate) fn run(what: &Generate) -> anyhow::Result<()> {
    match what {
        Generate::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), NAME, &mut script);
            io::stdout().lock().write_all(&script).map_err(Into::into)
        }
        Generate::Man { dir: None } => {
            let page = page(built())?;
            io::stdout().lock().write_all(&page).map_err(Into::into)
        }
        Generate::Man { dir: Some(dir) } => {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            write_pages(built(), NAME, dir)
        }
    }
}

/// The command line as its help shows it.
fn built() -> Command {
    let mut command = Arguments::command();
    command.build();
    command
}

/// A page for a command and for each one below it: `punctual-topics-create.1`.
fn write_pages(command: Command, name: &str, dir: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let name = format!("{name}-{}", below.get_name());
        write_pages(below.clone(), &name, dir)?;
    }
    let path = dir.join(format!("{name}.1"));
    let page = page(command.display_name(name.to_owned()))?;
    std::fs::write(&path, page).with_context(|| path.display().to_string())
}

fn page(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    let version = concat!("punctual ", env!("CARGO_PKG_VERSION"));
    Man::new(command).manual("Punctual").source(version).date("").render(&mut page)?;
    Ok(page)
}
