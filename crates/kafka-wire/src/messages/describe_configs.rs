//! DescribeConfigs (32): the settings of topics and brokers.

use crate::message::{request, wire};

request!(DescribeConfigsRequest => DescribeConfigsResponse, "DescribeConfigs", 32, 1..=4, 4);

wire! {
    flexible 4;

    /// What the client sends.
    struct DescribeConfigsRequest {
        resources: Vec<DescribeConfigsResource> => 0..;
        include_synonyms: bool => 0..;
        include_documentation: bool => 3..;
    }

    /// An element of [`DescribeConfigsRequest`]'s `resources`.
    struct DescribeConfigsResource {
        resource_type: i8 => 0..;
        resource_name: String => 0..;
        configuration_keys: Option<Vec<String>> => 0.., null 0..;
    }

    /// What the broker answers.
    struct DescribeConfigsResponse {
        throttle_time_ms: i32 => 0..;
        results: Vec<DescribeConfigsResult> => 0..;
    }

    /// An element of [`DescribeConfigsResponse`]'s `results`.
    struct DescribeConfigsResult {
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        resource_type: i8 => 0..;
        resource_name: String => 0..;
        configs: Vec<DescribeConfigsResourceResult> => 0..;
    }

    /// An element of [`DescribeConfigsResult`]'s `configs`.
    struct DescribeConfigsResourceResult {
        name: String => 0..;
        value: Option<String> => 0.., null 0..;
        read_only: bool => 0..;
        config_source: i8 => 0.., or -1;
        is_sensitive: bool => 0..;
        synonyms: Vec<DescribeConfigsSynonym> => 0..;
        config_type: i8 => 3..;
        documentation: Option<String> => 3.., null 3..;
    }

    /// An element of [`DescribeConfigsResourceResult`]'s `synonyms`.
    struct DescribeConfigsSynonym {
        name: String => 0..;
        value: Option<String> => 0.., null 0..;
        source: i8 => 0..;
    }
}
