"""Receives spans by OTLP over gRPC and prints them, one JSON object a line.

The first line is the port it listens on. It ends when its standard input does, so it never outlives
the test that started it.
"""

import json
import sys
import threading
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

printing = threading.Lock()


def plain(value):
    return getattr(value, value.WhichOneof("value"))


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_spans:
            service = attributes(resource.resource.attributes).get("service.name")
            for scope in resource.scope_spans:
                for span in scope.spans:
                    show(service, span)
        return trace_service_pb2.ExportTraceServiceResponse()


def show(service, span):
    line = {
        "service": service,
        "name": span.name,
        "kind": span.kind,
        "trace": span.trace_id.hex(),
        "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": span.status.code,
        "attributes": attributes(span.attributes),
    }
    with printing:
        print(json.dumps(line), flush=True)


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Receiver(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


main()
