//! DescribeCluster: who this is, and where.

use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use crate::access::{Permission, Target};
use crate::config::Advertised;
use crate::kafka::call::Call;
use crate::kafka::rights::cluster_operations;
use crate::kafka::shared::NODE_ID;

/// Brokers are asked for, not controllers.
const BROKERS: i8 = 1;

/// Who this is, and where.
pub(crate) async fn describe_cluster(
    call: &Call,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if !call.caller.may(Permission::See, Target::Anything) {
        return DescribeClusterResponse {
            error_code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED.code(),
            ..DescribeClusterResponse::default()
        };
    }
    if request.endpoint_type != BROKERS {
        return DescribeClusterResponse {
            error_code: ErrorCode::UNSUPPORTED_ENDPOINT_TYPE.code(),
            error_message: Some("only the endpoints of brokers are known here".to_owned()),
            ..DescribeClusterResponse::default()
        };
    }
    let Advertised { host, port } = call.advertised();
    let broker = DescribeClusterBroker {
        broker_id: NODE_ID,
        host,
        port: i32::from(port),
        ..DescribeClusterBroker::default()
    };
    let cluster_authorized_operations = match request.include_cluster_authorized_operations {
        true => cluster_operations(call),
        false => i32::MIN,
    };
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: call.shared.cluster.as_str().to_owned(),
        controller_id: NODE_ID,
        brokers: vec![broker],
        cluster_authorized_operations,
        ..DescribeClusterResponse::default()
    }
}
