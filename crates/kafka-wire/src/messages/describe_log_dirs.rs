//! DescribeLogDirs (35): how much room the partitions take on disk.

use crate::message::{request, wire};

request!(DescribeLogDirsRequest => DescribeLogDirsResponse, "DescribeLogDirs", 35, 1..=4, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct DescribeLogDirsRequest {
        topics: Option<Vec<DescribableLogDirTopic>> => 0.., null 0..;
    }

    /// An element of [`DescribeLogDirsRequest`]'s `topics`.
    struct DescribableLogDirTopic {
        topic: String => 0..;
        partitions: Vec<i32> => 0..;
    }

    /// What the broker answers.
    struct DescribeLogDirsResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 3..;
        results: Vec<DescribeLogDirsResult> => 0..;
    }

    /// An element of [`DescribeLogDirsResponse`]'s `results`.
    struct DescribeLogDirsResult {
        error_code: i16 => 0..;
        log_dir: String => 0..;
        topics: Vec<DescribeLogDirsTopic> => 0..;
        total_bytes: i64 => 4.., or -1;
        usable_bytes: i64 => 4.., or -1;
    }

    /// An element of [`DescribeLogDirsResult`]'s `topics`.
    struct DescribeLogDirsTopic {
        name: String => 0..;
        partitions: Vec<DescribeLogDirsPartition> => 0..;
    }

    /// An element of [`DescribeLogDirsTopic`]'s `partitions`.
    struct DescribeLogDirsPartition {
        partition_index: i32 => 0..;
        partition_size: i64 => 0..;
        offset_lag: i64 => 0..;
        is_future_key: bool => 0..;
    }
}
