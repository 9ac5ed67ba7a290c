//! The health service of gRPC: whether the broker takes requests, in all and for each service.

use std::pin::pin;
use std::sync::Arc;

use punctual_api::{Code, Problem};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::grpc::answers::Out;
use crate::grpc::call::Asked;
use crate::grpc::reflection::CONTRACT;
use crate::grpc::send::shutting_down;
use crate::grpc::wire::{Ask as _, Frames, framed, malformed};

/// Whether that service serves; `None` where there is no such service. Without a name it is all of
/// them.
fn status(asked: &Asked, service: &str) -> Option<ServingStatus> {
    if !service.is_empty() && CONTRACT.get_service_by_name(service).is_none() {
        return None;
    }
    let serves = asked.shared.is_taking() && !asked.shared.tasks.is_stopped();
    Some(if serves { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

pub(crate) async fn check(
    asked: Asked,
    request: HealthCheckRequest,
) -> Result<HealthCheckResponse, Problem> {
    let status = status(&asked, &request.service);
    let missing = || Problem::new(Code::NotFound, "there is no such service");
    Ok(response(status.ok_or_else(missing)?))
}

/// Tells the state, and once more when it changes: it changes when the broker stops.
pub(crate) async fn watch(asked: Asked, mut frames: Frames, out: Out) -> Result<(), Problem> {
    let shared = Arc::clone(&asked.shared);
    let mut stopped = pin!(shared.tasks.stopped());
    let frame = tokio::select! {
        frame = frames.next() => frame?,
        () = &mut stopped => return Err(shutting_down()),
    };
    let frame = frame.ok_or_else(|| malformed("the call has no message"))?;
    let request = HealthCheckRequest::read(&frame.bytes)?;
    let told = status(&asked, &request.service).unwrap_or(ServingStatus::ServiceUnknown);
    out.send(framed(&response(told))).await;
    stopped.await;
    if told == ServingStatus::Serving {
        out.send(framed(&response(ServingStatus::NotServing))).await;
    }
    Err(shutting_down())
}
