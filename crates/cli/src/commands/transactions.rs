//! `punctual transactions`.

use serde_json::json;

use super::{Session, with_parameters};
use crate::args::{Decision, TransactionsCommand};
use crate::client::escaped;
use crate::output::{field, line};

impl Session {
    pub(super) fn transactions(&self, command: TransactionsCommand) -> anyhow::Result<()> {
        match command {
            TransactionsCommand::List { state, producer_group, limit } => {
                let parameters =
                    [("state", state.as_deref()), ("producer_group", producer_group.as_deref())];
                let path = with_parameters("/v1/transactions".to_owned(), &parameters);
                self.pages(&path, "transactions", limit, |transaction| {
                    if self.json {
                        return line(&transaction.to_string());
                    }
                    let [created, id, group, state, checks] =
                        ["created", "id", "producer_group", "state", "checks_sent"]
                            .map(|name| field(transaction, name));
                    line(&format!("{created}  {id}  {group}  {state}  {checks} checks"))
                })
            }
            TransactionsCommand::Show { id } => {
                let answer = self.client.get(&format!("/v1/transactions/{}", escaped(&id)))?;
                self.show(&answer)
            }
            TransactionsCommand::Commit(decision) => self.decide(&decision, "commit"),
            TransactionsCommand::Rollback(decision) => self.decide(&decision, "rollback"),
            TransactionsCommand::Resume(decision) => self.decide(&decision, "resume"),
        }
    }

    fn decide(&self, decision: &Decision, word: &str) -> anyhow::Result<()> {
        let path = format!("/v1/transactions/{}/{word}", escaped(&decision.id));
        let answer = self.client.post(&path, &json!({"reason": decision.reason}))?;
        if self.json {
            return line(&answer.to_string());
        }
        line(&format!("{}  {}", field(&answer, "id"), field(&answer, "state")))
    }
}
