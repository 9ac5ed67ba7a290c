"""What every Python client of Kafka is held to: the data that is sent, and how waiting ends.

A check that fails ends the program with the reason; a client that is content prints `all is well`.
With PLAIN set, the broker is one that does not delay (Apache Kafka), and nothing is asked of it
that only a broker with delays can do; so the same programs can be tried against the original.
"""

import os
import subprocess
import sys
import time

PLAIN = bool(os.environ.get("PLAIN"))
PATIENCE = 60.0
PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Longer than a busy machine takes to send what must be written before it is due.
DELAY_MS = 5000

# Repeated names, no value, an empty value, bytes that are not text, a name that is not ASCII.
HEADERS = [
    ("plain", b"value"),
    ("twice", b"first"),
    ("twice", b"second"),
    ("nothing", None),
    ("empty", b""),
    ("bytes", bytes(range(256))),
    ("größe", "größe".encode()),
    ("", b"a name of no letters"),
]


def fail(reason):
    print(f"FAILED: {reason}", file=sys.stderr)
    # Threads of a client must not keep a failed program alive.
    sys.stderr.flush()
    os._exit(1)


def expect(condition, reason):
    if not condition:
        fail(reason)


def short(value):
    text = repr(value)
    return text if len(text) < 400 else f"{text[:200]} ... {text[-200:]}"


def same(found, wanted, what):
    expect(found == wanted, f"{what}: found {short(found)}, wanted {short(wanted)}")


def until(what, ask):
    """Asks until the answer is true; the asking itself waits."""
    end = time.monotonic() + PATIENCE
    while True:
        answer = ask()
        if answer:
            return answer
        expect(time.monotonic() < end, f"waited too long for {what}")


def now_ms():
    return time.time() * 1000


def member(address, topic, group):
    """Another member of a group, in a process of its own, that can be killed.

    It prints a line for each assignment that it is given.
    """
    command = [sys.executable, os.path.abspath(sys.argv[0]), address, "member", topic, group]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def holds_partitions(process):
    """Waits until that process says that it holds some."""
    for line in process.stdout:
        if line.startswith("assigned ") and int(line.split()[1]) > 0:
            return
    fail("the other member ended instead of joining")


def said(step):
    print(f"  {step}", flush=True)


class Delayed:
    """Holds what came of delayed records against what was asked for."""

    def __init__(self):
        self.earliest = {}
        self.reserved = {}

    def sent(self, body, delay_ms):
        """Called right before the record is sent."""
        self.earliest[body] = now_ms() + delay_ms

    def acknowledged(self, body, partition, offset):
        expect(offset is not None and offset >= 0, f"{body}: acknowledged at {offset}")
        self.reserved[body] = (partition, offset)

    def arrived(self, body, partition, offset, headers):
        # Clocks of one machine, read in whole milliseconds by the broker.
        early = self.earliest[body] - now_ms()
        expect(early <= 1, f"{body} came {early:.0f} ms early")
        names = [name for name, _ in headers]
        expect("punctual-id" in names, f"{body} has no punctual-id: {headers}")
        expect("punctual-due" in names, f"{body} has no punctual-due: {headers}")
        due = int(dict(headers)["punctual-due"])
        expect(due >= self.earliest[body] - 1, f"{body} was due at {due}, too early")
        expect("punctual-delay" not in names, f"{body} still has its delay")
        expect(("kept", b"as it was") in headers, f"{body} lost a header: {headers}")
        where, reserved = self.reserved[body]
        same(partition, where, f"the partition of {body}")
        expect(offset > reserved, f"{body} came at {offset}, reserved was {reserved}")
