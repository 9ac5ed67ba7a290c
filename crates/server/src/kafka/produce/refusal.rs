//! Why a batch is refused, in the codes that clients know.
//!
//! A code that clients retry is given only where another try may succeed and nothing was stored; for
//! what can never succeed, clients are told to give up.

use std::borrow::Cow;

use punctual_broker::{Invalid, ProduceError};
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::produce::{BatchIndexAndErrorMessage, PartitionProduceResponse};
use punctual_kafka_wire::records::BatchError;
use punctual_model::ports::StoreError;

/// Why a batch is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) message: Cow<'static, str>,
    /// The record that is to blame, counted in the batch.
    pub(super) record: Option<u32>,
}

impl Refusal {
    pub(super) fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), record: None }
    }

    /// The record at that place is wrong.
    pub(super) fn of_record(
        code: ErrorCode,
        record: u32,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { code, message: message.into(), record: Some(record) }
    }

    /// The answer for a partition.
    pub(super) fn answer(self, index: i32) -> PartitionProduceResponse {
        let record_errors = self.record.map(|record| BatchIndexAndErrorMessage {
            batch_index: i32::try_from(record).unwrap_or(i32::MAX),
            batch_index_error_message: Some(self.message.to_string()),
        });
        PartitionProduceResponse {
            index,
            error_code: self.code.code(),
            base_offset: -1,
            record_errors: record_errors.into_iter().collect(),
            error_message: Some(self.message.into_owned()),
            ..PartitionProduceResponse::default()
        }
    }
}

impl From<BatchError> for Refusal {
    fn from(error: BatchError) -> Self {
        let code = match error {
            BatchError::Torn | BatchError::Checksum => ErrorCode::CORRUPT_MESSAGE,
            BatchError::TooLarge => ErrorCode::MESSAGE_TOO_LARGE,
            // The checksum was right, so the same bytes would come again.
            BatchError::Magic
            | BatchError::Header
            | BatchError::Record
            | BatchError::Compressed => ErrorCode::INVALID_RECORD,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ProduceError> for Refusal {
    fn from(error: ProduceError) -> Self {
        let message = error.to_string();
        let code = match error {
            ProduceError::NotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ProduceError::Reserved => ErrorCode::INVALID_TOPIC_EXCEPTION,
            ProduceError::Invalid { delta, reason } => {
                return Self::of_record(of_invalid(reason), delta, message);
            }
            ProduceError::OwnIdTaken { delta } => {
                let message = "another message of the topic has this punctual-id";
                return Self::of_record(ErrorCode::INVALID_RECORD, delta, message);
            }
            ProduceError::Malformed => ErrorCode::INVALID_RECORD,
            ProduceError::OutOfOrder => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            ProduceError::OldDuplicate => ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
            ProduceError::StaleEpoch => ErrorCode::INVALID_PRODUCER_EPOCH,
            // Nothing was stored, and there may be room later.
            ProduceError::BacklogFull
            | ProduceError::Store(
                StoreError::Busy
                | StoreError::Full
                | StoreError::Unavailable(_)
                | StoreError::Elsewhere,
            ) => ErrorCode::NOT_ENOUGH_REPLICAS,
            ProduceError::Store(
                StoreError::Poisoned(_) | StoreError::Damaged(_) | StoreError::Closed,
            ) => ErrorCode::KAFKA_STORAGE_ERROR,
        };
        Self::new(code, message)
    }
}

fn of_invalid(reason: Invalid) -> ErrorCode {
    match reason {
        Invalid::BodyTooLarge { .. }
        | Invalid::HeadersTooLarge
        | Invalid::KeyTooLarge
        | Invalid::BatchTooLarge
        | Invalid::TooManyMessages => ErrorCode::MESSAGE_TOO_LARGE,
        _ => ErrorCode::INVALID_RECORD,
    }
}
