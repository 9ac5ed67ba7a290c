//! DescribeCluster (60): the brokers and the cluster's id.

use crate::message::{request, wire};

request!(DescribeClusterRequest => DescribeClusterResponse, "DescribeCluster", 60, 0..=2, 0);

wire! {
    flexible 0;

    /// What the client sends.
    struct DescribeClusterRequest {
        include_cluster_authorized_operations: bool => 0..;
        endpoint_type: i8 => 1.., or 1;
        include_fenced_brokers: bool => 2..;
    }

    /// What the broker answers.
    struct DescribeClusterResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        endpoint_type: i8 => 1.., or 1;
        cluster_id: String => 0..;
        controller_id: i32 => 0.., or -1;
        brokers: Vec<DescribeClusterBroker> => 0..;
        cluster_authorized_operations: i32 => 0.., or i32::MIN;
    }

    /// An element of [`DescribeClusterResponse`]'s `brokers`.
    struct DescribeClusterBroker {
        broker_id: i32 => 0..;
        host: String => 0..;
        port: i32 => 0..;
        rack: Option<String> => 0.., null 0..;
        is_fenced: bool => 2..;
    }
}
