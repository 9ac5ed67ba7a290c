//! Runs the server until a signal, and gathers its configuration.
//!
//! The first interrupt or SIGTERM asks the server to finish, the second ends it at once; SIGHUP
//! makes it read its configuration again.

mod logs;

use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use punctual_server::app::{self, Ready};
use punctual_server::config::{Config, ConfigFile, Key, Source, Written, effective, reference};
use punctual_server::live::Reload;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::{info, warn};

use self::logs::Logs;
use crate::args::{ConfigCommand, ServeOptions};
use crate::output::{failure, line};

/// What a shell shows for a program that a second interrupt ended.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(options: ServeOptions) -> ExitCode {
    serve(options).unwrap_or_else(|error| failure(&error))
}

fn serve(options: ServeOptions) -> anyhow::Result<ExitCode> {
    let file = gather(&options)?;
    let config = configure(&file, options.virtual_time.as_deref())?;
    let logs = Logs::start(&config.log)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let code = runtime.block_on(until_signal(config, Reader { options, file, logs }));
    // Whatever still runs was given its time.
    runtime.shutdown_background();
    code
}

/// The configuration, and where virtual time begins, which has no key.
fn configure(file: &ConfigFile, virtual_time: Option<&str>) -> anyhow::Result<Config> {
    let config = Config::try_from(file)?;
    match virtual_time {
        Some(start) => Ok(config.with_virtual_time(start)?),
        None => Ok(config),
    }
}

async fn until_signal(config: Config, reader: Reader) -> anyhow::Result<ExitCode> {
    let mut end = Signals::new().context("no signals")?;
    let read_again = signal(SignalKind::hangup()).context("no signals")?;
    let (asked, asked_to_stop) = oneshot::channel::<()>();
    let (ready, started) = oneshot::channel();
    let mut asked = Some(asked);
    let mut serving = Box::pin(app::serve(config, ready, async {
        let _sender_gone = asked_to_stop.await.is_err();
    }));
    let mut reading = Box::pin(reader.run(started, read_again));
    loop {
        tokio::select! {
            outcome = &mut serving => {
                outcome?;
                info!("ended");
                return Ok(ExitCode::SUCCESS);
            }
            never = &mut reading => match never {},
            () = end.next() => match asked.take() {
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

/// Reads the configuration again when it is asked to.
struct Reader {
    options: ServeOptions,
    /// What the server was started with.
    file: ConfigFile,
    logs: Logs,
}

impl Reader {
    async fn run(self, started: oneshot::Receiver<Ready>, mut asked: Signal) -> Infallible {
        let Ok(ready) = started.await else {
            // It never started, and says so itself.
            return pending().await;
        };
        let Self { options, file, logs } = self;
        let again =
            Arc::new(Mutex::new(Again { options, logs, reload: Reload::new(ready.live, file) }));
        while asked.recv().await.is_some() {
            let again = Arc::clone(&again);
            // Files are read, which may take its time.
            let read = tokio::task::spawn_blocking(move || again.lock().read());
            if read.await.is_err() {
                warn!("reading the configuration again was broken off");
            }
        }
        pending().await
    }
}

struct Again {
    options: ServeOptions,
    logs: Logs,
    reload: Reload,
}

impl Again {
    fn read(&mut self) {
        let taken = gather(&self.options).and_then(|file| Ok(self.reload.take(file)?));
        let changes = match taken {
            Ok(changes) => changes,
            Err(error) => {
                let error = format!("{error:#}");
                warn!(error, "the configuration cannot be taken; everything stays as it was");
                return;
            }
        };
        self.logs.set(&changes.log);
        info!(changed = names(&changes.taken), "the configuration was read again");
        if !changes.need_restart.is_empty() {
            let keys = names(&changes.need_restart);
            warn!(keys, "changed keys that need a restart keep their old values");
        }
    }
}

fn names(keys: &[&Key]) -> String {
    keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// File, then environment, then flags.
fn gather(options: &ServeOptions) -> anyhow::Result<ConfigFile> {
    let mut file = ConfigFile::default();
    if let Some(path) = &options.config {
        file.read_file(path.clone())?;
    }
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        // A name that is not text is not one of ours; a value that is not is refused by its key.
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    file.read_environment(variables)?;
    let unsaid = |written: Written<'_>| {
        written.key.name == "store.durability" && *written.source == Source::Default
    };
    if options.virtual_time.is_some() && file.values().any(unsaid) {
        // What is only played need not outlive a loss of power.
        file.set("store.durability", "os".to_owned(), Source::Flag("--virtual-time"))?;
    }
    for (name, flag, value) in [
        ("store.data", "--data", &options.data),
        ("http.listen", "--http", &options.http),
        ("kafka.listen", "--kafka", &options.kafka),
        ("store.durability", "--durability", &options.durability),
    ] {
        if let Some(value) = value {
            file.set(name, value.clone(), Source::Flag(flag))?;
        }
    }
    Ok(file)
}

/// `punctual config …`.
pub(crate) fn config(command: ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Print(options) => {
            let file = gather(&options)?;
            Config::try_from(&file)?;
            line(effective(&file).trim_end())
        }
        ConfigCommand::Check { file } => check(file),
        ConfigCommand::Reference => line(reference().trim_end()),
    }
}

/// Only the file counts: what the environment says here need not hold where it is used.
fn check(path: PathBuf) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let mut file = ConfigFile::default();
    file.read_file(path)?;
    Config::try_from(file)?;
    line(&format!("{shown} is good"))
}
