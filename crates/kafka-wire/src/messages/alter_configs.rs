//! AlterConfigs (33): settings replaced as a whole.

use crate::message::{request, wire};

request!(AlterConfigsRequest => AlterConfigsResponse, "AlterConfigs", 33, 0..=2, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct AlterConfigsRequest {
        resources: Vec<AlterConfigsResource> => 0..;
        validate_only: bool => 0..;
    }

    /// An element of [`AlterConfigsRequest`]'s `resources`.
    struct AlterConfigsResource {
        resource_type: i8 => 0..;
        resource_name: String => 0..;
        configs: Vec<AlterableConfig> => 0..;
    }

    /// An element of [`AlterConfigsResource`]'s `configs`.
    struct AlterableConfig {
        name: String => 0..;
        value: Option<String> => 0.., null 0..;
    }

    /// What the broker answers.
    struct AlterConfigsResponse {
        throttle_time_ms: i32 => 0..;
        responses: Vec<AlterConfigsResourceResponse> => 0..;
    }

    /// An element of [`AlterConfigsResponse`]'s `responses`.
    struct AlterConfigsResourceResponse {
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        resource_type: i8 => 0..;
        resource_name: String => 0..;
    }
}
