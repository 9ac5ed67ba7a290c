//! `punctual transactions`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::listing::Listing;
use super::{Session, with_parameters};
use crate::args::{Decision, PrepareOptions, TransactionsCommand};
use crate::client::escaped;
use crate::output::{Column, distance, field, line};

impl Session {
    pub(super) fn transactions(&self, command: Option<TransactionsCommand>) -> anyhow::Result<()> {
        let all = || TransactionsCommand::List { state: None, producer_group: None, limit: 100 };
        match command.unwrap_or_else(all) {
            TransactionsCommand::List { state, producer_group, limit } => {
                let parameters =
                    [("state", state.as_deref()), ("producer_group", producer_group.as_deref())];
                let path = with_parameters("/v1/transactions".to_owned(), &parameters);
                self.listed(&path, limit, &LISTING)
            }
            TransactionsCommand::Create(options) => self.prepare(options),
            TransactionsCommand::Show { id } => {
                let answer = self.client.get(&format!("/v1/transactions/{}", escaped(&id)))?;
                self.show(&answer)
            }
            TransactionsCommand::Commit(decision) => self.decide(&decision, "commit"),
            TransactionsCommand::Rollback(decision) => self.decide(&decision, "rollback"),
            TransactionsCommand::Resume(decision) => self.decide(&decision, "resume"),
        }
    }

    fn prepare(&self, options: PrepareOptions) -> anyhow::Result<()> {
        let PrepareOptions { producer_group, messages, key, delay, at, level, delay_from } =
            options;
        let half = |(topic, body): (String, String)| {
            json!({"topic": topic, "body": body, "key": key, "delay": delay, "deliver_at": at,
                   "delay_level": level, "delay_from": delay_from})
        };
        let messages: Vec<Value> = messages.into_iter().map(half).collect();
        let ask = json!({"producer_group": producer_group, "messages": messages});
        self.decided(&self.client.post("/v1/transactions", &ask)?)
    }

    fn decide(&self, decision: &Decision, word: &str) -> anyhow::Result<()> {
        let path = format!("/v1/transactions/{}/{word}", escaped(&decision.id));
        let answer = self.client.post(&path, &json!({"reason": decision.reason}))?;
        self.decided(&answer)
    }

    fn decided(&self, answer: &Value) -> anyhow::Result<()> {
        if self.json || self.quiet {
            return self.show(answer);
        }
        line(&format!("{}  {}", field(answer, "id"), field(answer, "state")))
    }
}

const LISTING: Listing<'_> = Listing {
    name: "transactions",
    names: "id",
    columns: &[
        Column::Whole("ID"),
        Column::Whole("CREATED"),
        Column::Cut("PRODUCERS"),
        Column::Whole("STATE"),
        Column::Number("CHECKS"),
    ],
    row: &row,
    empty: "there are no such transactions",
};

fn row(transaction: &Value, now: Timestamp) -> Vec<String> {
    let [id, created, group, state, checks] =
        ["id", "created", "producer_group", "state", "checks_sent"]
            .map(|name| field(transaction, name));
    let created = distance(&created, now).unwrap_or(created);
    vec![id, created, group, state, checks]
}
