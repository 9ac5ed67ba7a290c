"""The contract called by grpcio: one call at a time, batches, streams with credit, questions."""

import queue
import sys

import grpc
from google.protobuf.duration_pb2 import Duration
from punctual.v1 import punctual_pb2 as pb
from punctual.v1 import punctual_pb2_grpc as stubs

PATIENCE = 180


def refused(call, code, word):
    """The call is refused like that."""
    try:
        call()
    except grpc.RpcError as error:
        metadata = dict(error.trailing_metadata())
        assert error.code() == code, error
        assert metadata["punctual-code"] == word, metadata
        return metadata
    raise AssertionError(f"{word} was expected")


def unary(channel):
    messages = stubs.MessageServiceStub(channel)
    consumers = stubs.ConsumerServiceStub(channel)
    batch = [pb.NewMessage(body=b"%d" % number, key=b"k") for number in range(10)]
    sent = messages.Send(pb.SendRequest(topic="py", messages=batch), timeout=PATIENCE)
    assert len({one.id for one in sent.messages}) == 10
    ours = []
    while len(ours) < 10:
        received = consumers.Receive(
            pb.ReceiveRequest(topic="py", group="g", max=100, wait=Duration(seconds=20)),
            timeout=PATIENCE,
        )
        ours.extend(received.deliveries)
    assert [one.body for one in ours] == [b"%d" % number for number in range(10)]
    receipts = [one.receipt for one in ours]
    acked = consumers.Ack(pb.AckRequest(topic="py", group="g", receipts=receipts), timeout=PATIENCE)
    assert list(acked.results) == [pb.SETTLE_RESULT_ACKED] * 10

    later = pb.NewMessage(body=b"later", delay=Duration(seconds=3600), id="own-1")
    sent = messages.Send(pb.SendRequest(topic="py", messages=[later]), timeout=PATIENCE).messages[0]
    name = pb.MessageName(topic="py", id="own-1")
    assert messages.Get(pb.GetRequest(name=name), timeout=PATIENCE).id == sent.id
    messages.Cancel(pb.CancelRequest(name=name), timeout=PATIENCE)
    cancel = lambda: messages.Cancel(pb.CancelRequest(name=name), timeout=PATIENCE)
    refused(cancel, grpc.StatusCode.FAILED_PRECONDITION, "already_cancelled")
    wrong = pb.SendRequest(topic="py", messages=[later, pb.NewMessage(partition=99)])
    metadata = refused(
        lambda: messages.Send(wrong, timeout=PATIENCE),
        grpc.StatusCode.INVALID_ARGUMENT,
        "no_such_partition",
    )
    assert metadata["punctual-index"] == "1"


def send_stream(channel):
    messages = stubs.MessageServiceStub(channel)

    def batches():
        for sequence in range(500):
            batch = [pb.NewMessage(body=b"x" * 100, delay=Duration(seconds=3600))] * 20
            if sequence == 250:
                batch = []
            yield pb.SendStreamRequest(sequence=sequence, topic="py-stream", messages=batch)

    expected = 0
    for answer in messages.SendStream(batches(), timeout=PATIENCE):
        assert answer.sequence == expected, answer
        if expected == 250:
            assert answer.problem.code == "empty_batch"
        else:
            assert len(answer.sent.messages) == 20
        expected += 1
    assert expected == 500
    admin = stubs.AdminServiceStub(channel)
    topic = admin.GetTopic(pb.TopicName(topic="py-stream"), timeout=PATIENCE)
    assert topic.pending == 499 * 20


def receive_stream(channel):
    messages = stubs.MessageServiceStub(channel)
    consumers = stubs.ConsumerServiceStub(channel)
    batch = [pb.NewMessage(body=b"%d" % number) for number in range(50)]
    messages.Send(pb.SendRequest(topic="py-credit", messages=batch), timeout=PATIENCE)
    requests = queue.Queue()
    opening = pb.OpenReceive(topic="py-credit", group="g", credit=5)
    requests.put(pb.ReceiveStreamRequest(open=opening))
    stream = consumers.ReceiveStream(iter(requests.get, None), timeout=PATIENCE)
    seen, unsettled, sequence = set(), 0, 0
    for answer in stream:
        if answer.HasField("settled"):
            results = list(answer.settled.results.results)
            assert set(results) == {pb.SETTLE_RESULT_ACKED}
            unsettled -= len(results)
            if len(seen) == 50 and unsettled == 0:
                break
            requests.put(pb.ReceiveStreamRequest(credit=len(results)))
            continue
        deliveries = answer.received.deliveries
        unsettled += len(deliveries)
        assert unsettled <= 5, "never more than there is credit for"
        seen.update(one.id for one in deliveries)
        sequence += 1
        settle = pb.Settle(
            sequence=sequence, receipts=[one.receipt for one in deliveries], ack=pb.AckThese()
        )
        requests.put(pb.ReceiveStreamRequest(settle=settle))
    requests.put(None)
    assert len(seen) == 50


def checks(channel):
    transactions = stubs.TransactionServiceStub(channel)
    half = pb.HalfMessage(topic="py-transaction", message=pb.NewMessage(body=b"half"))
    policy = pb.CheckPolicy(first=Duration(), interval=Duration(seconds=3600))
    prepare = pb.PrepareRequest(producer_group="shop", messages=[half], check=policy)
    first = transactions.Prepare(prepare, timeout=PATIENCE)
    asked = transactions.Checks(
        pb.ChecksRequest(producer_group="shop", wait=Duration(seconds=20)), timeout=PATIENCE
    )
    assert [check.transaction for check in asked.checks] == [first.id]
    second = transactions.Prepare(
        pb.PrepareRequest(producer_group="other-shop", messages=[half], check=policy),
        timeout=PATIENCE,
    )
    requests = queue.Queue()
    opening = pb.OpenChecks(producer_group="other-shop", credit=1)
    requests.put(pb.CheckStreamRequest(open=opening))
    stream = transactions.CheckStream(iter(requests.get, None), timeout=PATIENCE)
    check = next(stream)
    assert check.transaction == second.id and check.messages[0].body == b"half"
    requests.put(None)
    for transaction in (first, second):
        decided = transactions.Commit(pb.DecideRequest(id=transaction.id), timeout=PATIENCE)
        assert decided.state == pb.TRANSACTION_STATE_COMMITTED


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        unary(channel)
        send_stream(channel)
        receive_stream(channel)
        checks(channel)
    with grpc.insecure_channel(sys.argv[1], compression=grpc.Compression.Gzip) as channel:
        messages = stubs.MessageServiceStub(channel)
        packed = [pb.NewMessage(body=b"x" * 10_000, delay=Duration(seconds=60))]
        messages.Send(pb.SendRequest(topic="py-gzip", messages=packed), timeout=PATIENCE)
    print("grpcio: all is well")


main()
