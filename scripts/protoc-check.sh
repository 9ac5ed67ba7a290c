#!/usr/bin/env bash
# Whether what builds the etcd client is there: the Protocol Buffers compiler with the definitions that come
# with it, which Debian has in two packages. Otherwise says what to install, and fails.
set -euo pipefail

try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
echo 'syntax = "proto3"; import "google/protobuf/descriptor.proto"; import "google/protobuf/struct.proto";' >"$try/try.proto"
if ! protoc --proto_path="$try" --descriptor_set_out=/dev/null "$try/try.proto" >/dev/null 2>&1; then
    echo "please install the Protocol Buffers compiler and its definitions (Debian: protobuf-compiler libprotobuf-dev)" >&2
    exit 1
fi
