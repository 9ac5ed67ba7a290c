//! Reflection: the contract, told to whoever wants to call without having it.
//!
//! Versions 1 and 1alpha have the same bytes on the wire, so one implementation serves both.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, LazyLock};

use prost::Message as _;
use prost_reflect::{DescriptorPool, FileDescriptor};
use punctual_api::Problem;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
    ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
};

use crate::access::Target;
use crate::grpc::answers::Out;
use crate::grpc::call::Asked;
use crate::grpc::send::shutting_down;
use crate::grpc::wire::{Ask as _, Frames, framed};

/// Everything that can be called, and all that goes to and fro.
pub(crate) static CONTRACT: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = DescriptorPool::new();
    for set in [
        punctual_proto::DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ] {
        pool.decode_file_descriptor_set(set).expect("the contracts are built in");
    }
    pool
});

/// Answers questions until the caller ends.
pub(crate) async fn stream(asked: Asked, mut frames: Frames, out: Out) -> Result<(), Problem> {
    asked.require(Target::Anything)?;
    let shared = Arc::clone(&asked.shared);
    let mut stopped = pin!(shared.tasks.stopped());
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame?,
            () = &mut stopped => return Err(shutting_down()),
        };
        let Some(frame) = frame else {
            return Ok(());
        };
        asked.caller().still_stands()?;
        let request = ServerReflectionRequest::read(&frame.bytes)?;
        out.send(framed(&answer(request))).await;
    }
}

fn answer(request: ServerReflectionRequest) -> ServerReflectionResponse {
    let response = match &request.message_request {
        Some(MessageRequest::ListServices(_)) => {
            let service = CONTRACT
                .services()
                .map(|service| ServiceResponse { name: service.full_name().to_owned() });
            MessageResponse::ListServicesResponse(ListServiceResponse {
                service: service.collect(),
            })
        }
        Some(MessageRequest::FileByFilename(name)) => files(CONTRACT.get_file_by_name(name)),
        Some(MessageRequest::FileContainingSymbol(name)) => files(containing(name)),
        // The contract has no extensions.
        Some(MessageRequest::FileContainingExtension(_)) => not_found(),
        Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
            match CONTRACT.get_message_by_name(name) {
                None => not_found(),
                Some(_) => MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: Vec::new(),
                }),
            }
        }
        None => error(tonic::Code::InvalidArgument, "the request asks for nothing"),
    };
    ServerReflectionResponse {
        valid_host: request.host.clone(),
        original_request: Some(request),
        message_response: Some(response),
    }
}

/// The file that says what that name is: of a service, a method, a message, a field or an enum.
fn containing(name: &str) -> Option<FileDescriptor> {
    let known = |name: &str| {
        let service = CONTRACT.get_service_by_name(name).map(|found| found.parent_file());
        let message = || CONTRACT.get_message_by_name(name).map(|found| found.parent_file());
        let list = || CONTRACT.get_enum_by_name(name).map(|found| found.parent_file());
        service.or_else(message).or_else(list)
    };
    known(name).or_else(|| {
        let (outer, inner) = name.rsplit_once('.')?;
        let of_service = CONTRACT
            .get_service_by_name(outer)
            .is_some_and(|service| service.methods().any(|method| method.name() == inner));
        let of_message = CONTRACT
            .get_message_by_name(outer)
            .is_some_and(|message| message.get_field_by_name(inner).is_some());
        if of_service || of_message { known(outer) } else { None }
    })
}

/// A file and all that it needs.
fn files(file: Option<FileDescriptor>) -> MessageResponse {
    let Some(file) = file else {
        return not_found();
    };
    let mut known = BTreeSet::new();
    let mut waiting = vec![file];
    let mut all = Vec::new();
    while let Some(file) = waiting.pop() {
        if known.insert(file.name().to_owned()) {
            all.push(file.file_descriptor_proto().encode_to_vec());
            waiting.extend(file.dependencies());
        }
    }
    MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto: all })
}

fn not_found() -> MessageResponse {
    error(tonic::Code::NotFound, "there is nothing of that name")
}

fn error(code: tonic::Code, message: &str) -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse {
        error_code: code.into(),
        error_message: message.to_owned(),
    })
}
