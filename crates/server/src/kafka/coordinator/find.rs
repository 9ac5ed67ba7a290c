//! `FindCoordinator`: it is always this broker.

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};

use super::handlers::named;
use crate::access::Permission;
use crate::config::Advertised;
use crate::kafka::call::Call;
use crate::kafka::shared::NODE_ID;

/// From here on several are asked for at once.
const MANY_FROM: i16 = 4;
/// Kinds of coordinators.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// `FindCoordinator`
pub(crate) async fn find_coordinator(
    call: &Call,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let (key_type, found) = (request.key_type, |key| find(call, request.key_type, key));
    if call.version < MANY_FROM {
        let key_type = if call.version == 0 { GROUP } else { key_type };
        let one = find(call, key_type, request.key.clone());
        return FindCoordinatorResponse {
            error_code: one.error_code,
            error_message: one.error_message,
            node_id: one.node_id,
            host: one.host,
            port: one.port,
            ..Default::default()
        };
    }
    let coordinators = request.coordinator_keys.iter().cloned().map(found).collect();
    FindCoordinatorResponse { coordinators, ..Default::default() }
}

fn find(call: &Call, key_type: i8, key: String) -> Coordinator {
    let rights = [Permission::Consume, Permission::See];
    let refused = match key_type {
        GROUP => named(call, &key, &rights).err(),
        // `group:topic id:partition`; whoever asks is no client but another broker.
        SHARE => key.split(':').next().and_then(|group| named(call, group, &rights).err()),
        // There are none here that a client of this protocol could use.
        TRANSACTION => Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        _ => Some(ErrorCode::INVALID_REQUEST),
    };
    if let Some(code) = refused {
        let (node_id, port) = (-1, -1);
        let error_message = Some(code.name().to_owned());
        let error_code = code.code();
        return Coordinator { key, node_id, port, error_code, error_message, ..Default::default() };
    }
    let Advertised { host, port } = call.advertised();
    Coordinator { key, node_id: NODE_ID, host, port: port.into(), ..Default::default() }
}
