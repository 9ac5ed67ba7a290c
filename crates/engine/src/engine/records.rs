//! Whole batches, for whoever speaks the format of the logs.

use std::future::Future;
use std::pin::Pin;

use punctual_model::ports::{
    Append, AppendError, Appended, LogPosition, Records, Slice, SliceError, Stamped, StoreError,
    TopicError,
};
use punctual_model::{MessageId, Partition, TopicId};

use crate::engine::Engine;
use crate::store::{Appending, CommitError, Outcome, Request, topic_refusal};

impl Records for Engine {
    fn append(
        &self,
        append: Append,
    ) -> Pin<Box<dyn Future<Output = Result<Appended, AppendError>> + Send>> {
        let request = Appending::new(append, self.now());
        let answer = request.map(|request| self.submit(Request::Append(Box::new(request))));
        Box::pin(async move {
            match answer?.await.unwrap_or(Err(StoreError::Closed.into())) {
                Ok(Outcome::Appended(appended)) => Ok(appended),
                Ok(_) => Err(StoreError::Closed.into()),
                Err(CommitError::Append(error)) => Err(error),
                Err(CommitError::Store(error)) => Err(error.into()),
                Err(_) => Err(StoreError::Busy.into()),
            }
        })
    }

    fn slice(&self, from: LogPosition, bytes_max: u64) -> Result<Slice, SliceError> {
        self.shared.store.logs.slice(from, bytes_max)
    }

    fn first_since(
        &self,
        topic: TopicId,
        partition: Partition,
        millis: i64,
    ) -> Result<Option<Stamped>, TopicError> {
        self.shared.store.logs.first_since(topic, partition, millis)
    }

    fn latest(&self, topic: TopicId, partition: Partition) -> Result<Option<Stamped>, TopicError> {
        self.shared.store.logs.latest(topic, partition)
    }

    fn reserved(&self, at: LogPosition) -> Result<Option<MessageId>, StoreError> {
        self.shared.store.reserved(at)
    }

    fn trim(&self, before: LogPosition) -> Result<u64, SliceError> {
        let answer = futures_executor::block_on(self.submit(Request::Trim(before)));
        match answer.unwrap_or(Err(StoreError::Closed.into())) {
            Ok(Outcome::Trimmed(start)) => Ok(start),
            Ok(_) => Err(SliceError::Topic(StoreError::Closed.into())),
            Err(CommitError::Slice(error)) => Err(error),
            Err(error) => Err(SliceError::Topic(topic_refusal(error))),
        }
    }
}
