//! The gRPC contract: messages, client and server stubs, all made of `proto/punctual/v1`.
//!
//! Nothing is written by hand here; what the messages mean stands in the contract itself.

/// Version 1 of the contract.
pub mod v1 {
    tonic::include_proto!("punctual.v1");
}

/// The contract itself, as a `google.protobuf.FileDescriptorSet`, for whoever wants to reflect.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/punctual.v1.bin"));
