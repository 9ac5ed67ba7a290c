//! Runs the server until a signal, and gathers its configuration.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use punctual_server::app;
use punctual_server::config::{Config, ConfigFile, Source};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::args::ServeOptions;
use crate::output::{failure, line};

/// What a shell shows for a program that a second interrupt ended.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(options: ServeOptions) -> ExitCode {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .with_env_var("PUNCTUAL_LOG")
        .from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let virtual_time = options.virtual_time.clone();
    let served = gather(options)
        .and_then(|file| configure(file, virtual_time.as_deref()))
        .and_then(|config| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .context("no runtime")?;
            let code = runtime.block_on(until_signal(config));
            // Whatever still runs was given its time.
            runtime.shutdown_background();
            code
        });
    served.unwrap_or_else(|error| failure(&error))
}

/// The configuration, and where virtual time begins, which has no key.
fn configure(file: ConfigFile, virtual_time: Option<&str>) -> anyhow::Result<Config> {
    let config = Config::try_from(file)?;
    match virtual_time {
        Some(start) => Ok(config.with_virtual_time(start)?),
        None => Ok(config),
    }
}

/// The first signal asks the server to finish, the second ends it at once.
async fn until_signal(config: Config) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("no signals")?;
    let (asked, asked_to_stop) = oneshot::channel::<()>();
    // The line that says ready comes from the server itself.
    let (ready, _unused) = oneshot::channel();
    let mut asked = Some(asked);
    let serving = app::serve(config, ready, async {
        let _sender_gone = asked_to_stop.await.is_err();
    });
    let mut serving = Box::pin(serving);
    loop {
        tokio::select! {
            outcome = &mut serving => {
                outcome?;
                info!("ended");
                return Ok(ExitCode::SUCCESS);
            }
            () = signals.next() => match asked.take() {
                Some(asked) => {
                    info!("ending; a second signal ends at once");
                    let _ended_meanwhile = asked.send(()).is_err();
                }
                None => {
                    warn!("ended at once");
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            },
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// File, then environment, then flags.
fn gather(options: ServeOptions) -> anyhow::Result<ConfigFile> {
    let mut file = ConfigFile::default();
    if let Some(path) = options.config {
        file.read_file(path)?;
    }
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        // A variable that is not text is not one of ours.
        Some((name.into_string().ok()?, value.into_string().ok()?))
    });
    file.read_environment(variables)?;
    let unsaid = |(name, _, source): (&str, &str, &Source)| {
        name == "store.durability" && *source == Source::Default
    };
    if options.virtual_time.is_some() && file.values().any(unsaid) {
        // What is only played need not outlive a loss of power.
        file.set("store.durability", "os".to_owned(), Source::Flag("--virtual-time"))?;
    }
    for (name, flag, value) in [
        ("store.data", "--data", options.data),
        ("http.listen", "--http", options.http),
        ("store.durability", "--durability", options.durability),
    ] {
        if let Some(value) = value {
            file.set(name, value, Source::Flag(flag))?;
        }
    }
    Ok(file)
}

/// `punctual config print`: a file that would give the same configuration.
pub(crate) fn print(options: ServeOptions) -> anyhow::Result<()> {
    let file = gather(options)?;
    Config::try_from(file.clone())?;
    let mut section_before = "";
    for (name, value, source) in file.values() {
        let (section, key) = name.split_once('.').unwrap_or(("", name));
        if section != section_before {
            line(&format!("[{section}]"))?;
            section_before = section;
        }
        line(&format!("{key} = {value:?} # {source}"))?;
    }
    Ok(())
}
