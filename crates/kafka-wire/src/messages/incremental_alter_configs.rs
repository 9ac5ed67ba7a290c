//! IncrementalAlterConfigs (44): single settings changed.

use crate::message::{request, wire};

request!(
    IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse,
    "IncrementalAlterConfigs", 44, 0..=1, 1
);

wire! {
    flexible 1;

    /// What the client sends.
    struct IncrementalAlterConfigsRequest {
        resources: Vec<AlterConfigsResource> => 0..;
        validate_only: bool => 0..;
    }

    /// An element of [`IncrementalAlterConfigsRequest`]'s `resources`.
    struct AlterConfigsResource {
        resource_type: i8 => 0..;
        resource_name: String => 0..;
        configs: Vec<AlterableConfig> => 0..;
    }

    /// An element of [`AlterConfigsResource`]'s `configs`.
    struct AlterableConfig {
        name: String => 0..;
        config_operation: i8 => 0..;
        value: Option<String> => 0.., null 0..;
    }

    /// What the broker answers.
    struct IncrementalAlterConfigsResponse {
        throttle_time_ms: i32 => 0..;
        responses: Vec<AlterConfigsResourceResponse> => 0..;
    }

    /// An element of [`IncrementalAlterConfigsResponse`]'s `responses`.
    struct AlterConfigsResourceResponse {
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        resource_type: i8 => 0..;
        resource_name: String => 0..;
    }
}
