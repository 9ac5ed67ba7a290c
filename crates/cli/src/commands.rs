//! The client commands.

mod listing;
mod topics;
mod send;
mod receive;
mod consume;
mod groups;
mod dead;
mod job;
mod pending;
mod bulk;
mod transactions;
mod transfer;
mod apps;
mod admin;
mod top;
mod bench;
mod advice;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::{ClientCommand, ClientOptions};
use crate::client::{Client, escaped};
use crate::output::{self, cut, field, fields, line};

/// Most messages the server gives in one page.
const PAGE_MESSAGES_MAX: usize = 1000;
/// How much of a body a list shows.
const BODY_CHARS_SHOWN: usize = 60;

/// Runs a command to its end; the reason of a failure, and what to do about it, is on stderr.
pub(crate) fn run(options: &ClientOptions, command: ClientCommand) -> ExitCode {
    let client = match Client::new(options) {
        Ok(client) => client,
        Err(error) => return output::failure(&error),
    };
    let session = Arc::new(Session {
        client,
        json: options.json,
        quiet: options.quiet,
        now: OnceLock::new(),
    });
    let outcome = match command {
        // Its workers share it.
        ClientCommand::Consume(options) => consume::run(Arc::clone(&session), options),
        ClientCommand::Top(options) => top::run(&session, &options),
        ClientCommand::Bench(options) => bench::run(&session, &options),
        command => session.run(command),
    };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    let code = output::failure(&error);
    if code != ExitCode::SUCCESS
        && let Some(advice) = advice::on(&error, &session.client)
    {
        output::hint(&advice);
    }
    code
}

/// A server, and the form in which its answers are shown.
struct Session {
    client: Client,
    json: bool,
    quiet: bool,
    now: OnceLock<Timestamp>,
}

impl Session {
    fn run(&self, command: ClientCommand) -> anyhow::Result<()> {
        match command {
            ClientCommand::Send(options) => self.send(options),
            ClientCommand::Get(place) => self.get(&place),
            ClientCommand::Cancel { ids, topic } => self.cancel(&ids, topic.as_deref()),
            ClientCommand::Reschedule { place, time } => self.reschedule(&place, time),
            ClientCommand::Pause(place) => self.set_paused(&place, true),
            ClientCommand::Resume(place) => self.set_paused(&place, false),
            ClientCommand::DeliverNow(place) => self.deliver_now(&place),
            ClientCommand::List(options) => self.list(&options),
            ClientCommand::Bulk { command } => self.bulk(command),
            ClientCommand::Forecast { topic } => self.forecast(topic.as_deref()),
            ClientCommand::Series { topic, limit } => self.series(&topic, limit),
            ClientCommand::Levels { command } => self.levels(command),
            ClientCommand::Transactions { command } => self.transactions(command),
            ClientCommand::Export(options) => self.export(&options),
            ClientCommand::Import(options) => self.import(&options),
            ClientCommand::Audit { topic, limit } => self.audit(topic.as_deref(), limit),
            ClientCommand::Receive(options) => self.receive(&options),
            ClientCommand::Ack(receipts) => self.settle(&receipts, "ack", &json!({})),
            ClientCommand::Nack(options) => self.nack(&options),
            ClientCommand::Extend(options) => {
                self.settle(&options.receipts, "extend", &json!({"lease": options.lease}))
            }
            ClientCommand::Topics { command } => self.topics(command),
            ClientCommand::Groups { command } => self.groups(command),
            ClientCommand::Dead { command } => self.dead(command),
            ClientCommand::Read(options) => self.read(&options),
            ClientCommand::Apps { command } => self.apps(command),
            ClientCommand::Cluster { command } => self.cluster(command),
            ClientCommand::Stats => self.stats(),
            ClientCommand::Consume(_) | ClientCommand::Top(_) | ClientCommand::Bench(_) => {
                unreachable!("they are run where the session can be shared")
            }
            ClientCommand::Time { command } => self.time(command),
        }
    }

    /// What time it is for the server, or else here; asked once.
    fn now(&self) -> Timestamp {
        *self.now.get_or_init(|| {
            let answer = self.client.get("/v1/time").ok();
            let told = answer.and_then(|answer| answer["now"].as_str()?.parse().ok());
            told.unwrap_or_else(Timestamp::now)
        })
    }

    /// An answer in whole: for programs as it is, for scripts its name, for people a field per
    /// line.
    fn show(&self, answer: &Value) -> anyhow::Result<()> {
        if self.json {
            return line(&answer.to_string());
        }
        if self.quiet {
            let name = ["id", "name", "key"].into_iter().find(|name| answer[name].is_string());
            return name.map_or(Ok(()), |name| line(&field(answer, name)));
        }
        fields(answer, self.now())
    }
}

/// The text that people see of a body.
fn shown_body(message: &Value) -> String {
    let body = if message["body"].is_string() { "body" } else { "body_base64" };
    cut(&field(message, body), BODY_CHARS_SHOWN)
}

/// Adds parameters to a path, those that are there.
fn with_parameters(mut path: String, parameters: &[(&str, Option<&str>)]) -> String {
    for (name, value) in parameters {
        if let Some(value) = value {
            let join = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{join}{name}={}", escaped(value)));
        }
    }
    path
}
