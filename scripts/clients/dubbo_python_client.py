"""The contract called by Dubbo's client for Python, over Triple."""

import sys

import dubbo
from dubbo.configs import ReferenceConfig
from google.protobuf.duration_pb2 import Duration
from punctual.v1 import punctual_pb2 as pb

SERVICE = "punctual.v1.MessageService"


def main():
    reference = ReferenceConfig.from_url(f"tri://{sys.argv[1]}/{SERVICE}")
    client = dubbo.Client(reference)

    def unary(method, answer):
        return client.unary(
            method_name=method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )

    send, get = unary("Send", pb.SendResponse), unary("Get", pb.Message)
    later = pb.NewMessage(body=b"from Dubbo", delay=Duration(seconds=3600))
    for _ in range(20):
        sent = send(pb.SendRequest(topic="dubbo-py", messages=[later]))
        assert len(sent.messages) == 1, sent
        found = get(pb.GetRequest(name=pb.MessageName(id=sent.messages[0].id)))
        assert found.body == b"from Dubbo", found
    try:
        answer = get(pb.GetRequest(name=pb.MessageName(id="nothing")))
    except Exception as error:  # its own kind of exception is not part of what it promises
        assert "no such message" in str(error), error
    else:
        raise AssertionError(f"a missing message was found: {answer}")
    print("dubbo-python: all is well")


main()
