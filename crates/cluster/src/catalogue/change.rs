//! How topics and groups are changed: each step is one document that is written only if it is still
//! what was read, and whoever was not the first looks again and begins anew.
//!
//! A group has three documents. Its topics are made before it and removed before it, so a group that
//! is there has its topics but for a crash in the midst of its removal, which the next change of it
//! puts right; and topics that are left of a group that was never finished are taken by the next one
//! of that name. A topic goes after its groups, and a group that was made meanwhile goes after it.

use std::sync::Arc;

use parking_lot::RwLock;
use punctual_model::group::{Group, GroupId, GroupName, GroupSettings};
use punctual_model::ports::{GroupError, StoreError, Topic, TopicError};
use punctual_model::{DelayLevels, TopicName, TopicSettings};

use super::shelf::{Shelf, refusal};
use super::tables::{Plan, Tables, Write};

/// How often a change begins anew because others were first.
const TRIES_MAX: usize = 32;

/// Changes the documents behind the tables.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    pub(super) shelf: Shelf,
    pub(super) tables: Arc<RwLock<Tables>>,
}

impl Changes {
    /// Makes a topic, or changes the settings of one that is there unless it is only wanted.
    pub(super) async fn put_topic(
        &self,
        name: TopicName,
        settings: TopicSettings,
        only_make: bool,
    ) -> Result<Arc<Topic>, TopicError> {
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            let plan = self.tables.read().plan_topic(&name, settings.clone(), only_make)?;
            match plan {
                Plan::Same(known) => return Ok(known),
                Plan::Change(planned, writes) => {
                    if self.carry_out(writes).await? {
                        return Ok(Arc::new(planned));
                    }
                }
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Removes a topic with its groups. False when there was none.
    pub(super) async fn delete_topic(&self, name: TopicName) -> Result<bool, TopicError> {
        let mut removed = None;
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            let (topic, writes) = {
                let tables = self.tables.read();
                match removed {
                    Some(id) => (None, tables.plan_rest_removal(id)),
                    None => {
                        let topic = tables.topics.plan_delete(&name)?;
                        let writes = topic.as_ref().map(|topic| tables.plan_topic_removal(topic));
                        (topic, writes.unwrap_or_default())
                    }
                }
            };
            if writes.is_empty() {
                return Ok(removed.is_some());
            }
            if self.carry_out(writes).await? {
                removed = topic.map(|topic| topic.id).or(removed);
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Makes a group with its topics, or changes its settings.
    pub(super) async fn put_group(
        &self,
        topic: punctual_model::TopicId,
        name: GroupName,
        settings: GroupSettings,
    ) -> Result<Arc<Group>, GroupError> {
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            let plan = self.tables.read().plan_group(topic, &name, settings.clone())?;
            let (group, writes) = match plan {
                Plan::Same(known) => return Ok(known),
                Plan::Change(group, writes) => (group, writes),
            };
            if self.carry_out(writes).await? {
                // It may have been made while its topic was deleted.
                if self.tables.read().topics.by_id(topic).is_some() {
                    return Ok(Arc::new(group));
                }
                self.delete_group(group.id).await?;
                return Err(GroupError::TopicNotFound);
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Removes a group, its topics, and the groups of its dead letters. False when there was none.
    pub(super) async fn delete_group(&self, id: GroupId) -> Result<bool, GroupError> {
        let mut found = false;
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            let writes = self.tables.read().plan_group_removal(id);
            if writes.is_empty() {
                return Ok(found);
            }
            found = true;
            self.carry_out(writes).await?;
        }
        Err(StoreError::Busy.into())
    }

    /// Changes the delay levels.
    pub(super) async fn put_levels(&self, levels: DelayLevels) -> Result<(), StoreError> {
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            let write = self.tables.read().plan_levels(&levels);
            let Some(write) = write else { return Ok(()) };
            if self.carry_out(vec![write]).await? {
                return Ok(());
            }
        }
        Err(StoreError::Busy)
    }

    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        self.shelf.refresh().await.map_err(refusal)
    }

    /// Writes one after the other. False when somebody else was first at one of them; those before
    /// it are written.
    async fn carry_out(&self, writes: Vec<Write>) -> Result<bool, StoreError> {
        for Write { name, expected, content } in writes {
            let written = match (expected, content) {
                (0, Some(content)) => self.shelf.create(name, content).await,
                (expected, content) => self.shelf.put(name, expected, content).await,
            };
            if !written.map_err(refusal)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
