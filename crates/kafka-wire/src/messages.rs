//! The messages of the APIs served here, one module per API.
//!
//! Names of structs and fields are those of Kafka's own schemas, so that its documentation applies
//! word for word. A message is plain data: what it means is decided by who handles it.

pub mod api_versions;
pub mod metadata;
pub mod produce;
pub mod fetch;
pub mod list_offsets;
pub mod init_producer_id;
pub mod find_coordinator;
pub mod join_group;
pub mod sync_group;
pub mod heartbeat;
pub mod leave_group;
pub mod describe_groups;
pub mod list_groups;
pub mod delete_groups;
pub mod offset_commit;
pub mod offset_fetch;
pub mod offset_delete;
pub mod sasl_handshake;
pub mod sasl_authenticate;
pub mod create_topics;
pub mod delete_topics;
pub mod delete_records;
pub mod offset_for_leader_epoch;
pub mod describe_configs;
pub mod alter_configs;
pub mod incremental_alter_configs;
pub mod describe_log_dirs;
pub mod create_partitions;
pub mod describe_cluster;
pub mod describe_topic_partitions;
pub mod share_group_heartbeat;
pub mod share_group_describe;
pub mod share_fetch;
pub mod share_acknowledge;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod crosscheck;
