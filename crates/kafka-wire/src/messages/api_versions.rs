//! ApiVersions (18): which APIs the broker offers, in which versions.

use crate::message::{request, wire};

request!(ApiVersionsRequest => ApiVersionsResponse, "ApiVersions", 18, 0..=4, 3);

wire! {
    flexible 3;

    /// What the client sends.
    struct ApiVersionsRequest {
        client_software_name: String => 3..;
        client_software_version: String => 3..;
    }

    /// What the broker answers.
    struct ApiVersionsResponse {
        error_code: i16 => 0..;
        api_keys: Vec<ApiVersion> => 0..;
        throttle_time_ms: i32 => 1..;
        supported_features: Vec<SupportedFeatureKey> => 3.., tag 0;
        finalized_features_epoch: i64 => 3.., tag 1, or -1;
        finalized_features: Vec<FinalizedFeatureKey> => 3.., tag 2;
        zk_migration_ready: bool => 3.., tag 3;
    }

    /// An element of [`ApiVersionsResponse`]'s `api_keys`.
    struct ApiVersion {
        api_key: i16 => 0..;
        min_version: i16 => 0..;
        max_version: i16 => 0..;
    }

    /// An element of [`ApiVersionsResponse`]'s `supported_features`.
    struct SupportedFeatureKey {
        name: String => 3..;
        min_version: i16 => 3..;
        max_version: i16 => 3..;
    }

    /// An element of [`ApiVersionsResponse`]'s `finalized_features`.
    struct FinalizedFeatureKey {
        name: String => 3..;
        max_version_level: i16 => 3..;
        min_version_level: i16 => 3..;
    }
}
