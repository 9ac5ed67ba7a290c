//! Ids for idempotent producers.
//!
//! They are random, so none has to be written down before it is given, and nobody guesses that of
//! somebody else. Whoever has one gets the same again in a new epoch: what is still under way of the
//! old one is refused from then on.

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::init_producer_id::{
    InitProducerIdRequest, InitProducerIdResponse,
};

use crate::access::{Permission, Target};
use crate::kafka::call::Call;

/// Ids have this many bits.
const ID_BITS: u32 = 62;

/// `InitProducerId`
pub(crate) async fn init_producer_id(
    call: &Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    if request.transactional_id.is_some() {
        return refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    if !call.caller.may(Permission::Send, Target::Anything) {
        return refused(ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    }
    let (given, epoch) = (request.producer_id, request.producer_epoch);
    let next = epoch.checked_add(1).filter(|_| given >= 0 && epoch >= 0);
    let (producer_id, producer_epoch) = match next {
        Some(next) => (given, next),
        None => match random_id() {
            Ok(id) => (id, 0),
            Err(_no_randomness) => return refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        },
    };
    InitProducerIdResponse { producer_id, producer_epoch, ..InitProducerIdResponse::default() }
}

fn refused(code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: code.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}

fn random_id() -> Result<i64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(i64::from_be_bytes(bytes) & ((1 << ID_BITS) - 1))
}
