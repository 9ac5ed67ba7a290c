//! What is offered, in which versions. Clients ask this first, also before they show who they are.

use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::message::Request as _;
use punctual_kafka_wire::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse,
};
use punctual_kafka_wire::messages::produce::ProduceRequest;

use crate::kafka::call::Call;
use crate::kafka::dispatch::SERVED;
use crate::kafka::reply::{Answering, Reply};

/// What is offered.
pub(crate) async fn api_versions(_: &Call, _: ApiVersionsRequest) -> ApiVersionsResponse {
    offered(ErrorCode::NONE)
}

/// The answer to a version that is not known here: in the first form, which every client reads, and
/// with the list, so that it knows what to ask with.
pub(crate) fn unsupported(correlation_id: i32) -> Reply {
    let answering = Answering::<ApiVersionsRequest>::new(correlation_id, 0);
    answering.reply(&offered(ErrorCode::UNSUPPORTED_VERSION))
}

fn offered(error: ErrorCode) -> ApiVersionsResponse {
    let api_keys = SERVED.iter().map(|served| ApiVersion {
        api_key: served.key,
        // Older clients compress only where they find the very first version in the list; none of
        // them sends it.
        min_version: if served.key == ProduceRequest::KEY { 0 } else { *served.versions.start() },
        max_version: *served.versions.end(),
    });
    let mut api_keys: Vec<ApiVersion> = api_keys.collect();
    api_keys.sort_unstable_by_key(|api| api.api_key);
    ApiVersionsResponse { error_code: error.code(), api_keys, ..ApiVersionsResponse::default() }
}
