"""What the document says in words only, for schemathesis.

A schema cannot say that a partition must be one that the topic has, or how far from now a time may be. Requests that
are meant to be legal are made to keep to that here; those that are meant to be wrong stay as they are.
"""

import datetime
import json
import re
import time

import schemathesis
from hypothesis import strategies as st

# Topics and groups that exist, so that not everything is answered by "there is no such topic".
TOPICS = ["orders", "letters"]
GROUPS = ["billing", "shipping"]
DAY_MS = 24 * 3600 * 1000
NOW_MS = int(time.time() * 1000)
# One of ours, of a message that does not exist.
MESSAGE_ID = "06gy2ak0340000000175j000440068kh"
NAME = re.compile("([.]{0,2}[A-Za-z0-9_-]|[.]{3})[A-Za-z0-9._-]*")
# The longest name of a group whose topic of dead letters still has a legal name.
NAME_CHARS = 100


def rfc3339(millis):
    seconds, rest = divmod(millis, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03}Z"


# Within every bound that a duration of this interface has.
SPANS = st.one_of(
    st.integers(1, 60).map(lambda seconds: f"{seconds}s"),
    st.integers(1000, 60000).map(lambda millis: f"{millis}ms"),
    st.sampled_from(["1m", "PT1S", "PT30S", "1500", "30s500ms", "P0DT1M"]),
)
MOMENTS = st.integers(0, NOW_MS + 30 * DAY_MS)
PLAIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)
FORMATS = {
    "span": SPANS,
    "shift": SPANS | SPANS.map(lambda text: "-" + text),
    "date-time": MOMENTS.map(rfc3339),
    "epoch-millis": MOMENTS.map(str),
    "interval": st.integers(1000, 1 << 30).map(str),
    "partition": st.integers(0, 3).map(str),
    "cron": st.sampled_from(["0 9 * * 1-5", "* * * * *", "30 0 9 1 1 *"]),
    "time-zone": st.sampled_from(["UTC", "Asia/Shanghai", "Europe/Berlin"]),
    "own-id": PLAIN,
    "push-secret": PLAIN.map(lambda text: "s" + text),
    "uri": st.sampled_from(["https://hooks.invalid/in", "https://hooks.invalid/a?b=c"]),
    "message-id": st.just(MESSAGE_ID),
    "catch-up": SPANS.map(lambda text: "spread:" + text),
    "place": st.tuples(MOMENTS, st.integers(0, 1 << 40)).map(lambda pair: "{:x}-{:x}".format(*pair)),
    "number-cursor": st.integers(0, 1 << 40).map(str),
    "export-cursor": st.sampled_from(["s", "p", "r"]),
    "name-cursor": st.just("orders"),
    "group-cursor": st.just("orders/billing"),
    "date": st.dates(datetime.date(1970, 1, 1), datetime.date(2100, 1, 1)).map(str),
    "names": st.sampled_from(["*", "orders.*", "orders"]),
    "entity-tag": st.sampled_from(["*", '"1"', '"0123456789abcdef0123456789abcdef"']),
}
for name, strategy in FORMATS.items():
    schemathesis.openapi.format(name, strategy)


@schemathesis.serializer("application/x-ndjson")
def write_lines(context, value):
    data = getattr(value, "data", value)
    return data if isinstance(data, bytes) else str(data).encode()


@schemathesis.deserializer("application/x-ndjson")
def read_lines(context, response):
    return [json.loads(line) for line in response.content.splitlines()]


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Answers may gain fields one day; now they have those of the document and no others."""
    close(raw_schema["components"]["schemas"])
    close(raw_schema["paths"])


def close(node):
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            node.setdefault("additionalProperties", False)
        for value in node.values():
            close(value)
    elif isinstance(node, list):
        for value in node:
            close(value)


@schemathesis.hook
def filter_case(context, case):
    """Lines are answered one by one, so no body of them is wrong as a whole."""
    meant_wrong = case.meta is not None and not case.meta.generation.mode.is_positive
    return not (meant_wrong and case.media_type == "application/x-ndjson")


@schemathesis.hook
def before_call(context, case, kwargs):
    path = case.path_parameters or {}
    # What exists is not deleted, so that there is something to ask about.
    deletes = case.method == "DELETE" and case.operation.path.endswith(("/topics/{topic}", "/groups/{group}"))
    for name, known in (("topic", TOPICS), ("group", GROUPS)):
        value = path.get(name)
        if not isinstance(value, str) or not NAME.fullmatch(value):
            continue
        if deletes and value in known:
            path[name] = "to-delete"
        elif not deletes and sum(map(ord, value)) % 4:
            path[name] = known[len(value) % len(known)]
    body = case.body
    if isinstance(body, dict) and is_wait(body.get("wait")):
        body["wait"] = 5
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    tame_path(path)
    if isinstance(case.query, dict):
        tame_query(case.query)
    if isinstance(body, (dict, list)):
        case.body = tame(body)
    if isinstance(case.body, dict):
        tame_request(case)


def is_wait(value):
    """Whether it is a wait that is allowed. Nobody waits for long here."""
    if isinstance(value, str):
        value = millis(value)
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 60000


BULK = ("/scheduled/cancel", "/scheduled/deliver", "/scheduled/reschedule", "/dead/purge")


UNITS = {"d": DAY_MS, "h": 3600 * 1000, "m": 60 * 1000, "s": 1000, "ms": 1}


def millis(text):
    """How long a duration is, if it is one."""
    if re.fullmatch("[0-9]+", text):
        return int(text)
    parts = re.findall("([0-9]+)(ms|[dhms])", text.lower())
    if not parts or not re.fullmatch("p?([0-9]+[dhms]+|t)+", text.lower()):
        return None
    return sum(int(count) * UNITS[unit] for count, unit in parts)


def tame_request(case):
    """What depends on the operation."""
    body, path = case.body, case.operation.path
    if path.endswith(("/scheduled/pause", "/scheduled/resume")) and isinstance(body.get("filter"), dict):
        # Only what runs can be paused, only what is paused can go on.
        body["filter"].pop("state", None)
        body["all"] = True
    if path.endswith(BULK) and all(value is None for value in (body.get("filter") or {}).values()):
        body["all"] = True
    if path.endswith("/groups/{group}"):
        # Only a new group starts somewhere.
        body.pop("start", None)
    if path.endswith("/drain"):
        topic = (case.path_parameters or {}).get("topic")
        body["to"] = TOPICS[1] if topic == TOPICS[0] else TOPICS[0]
    if path.endswith("/retry") and body.get("id") is not None:
        body["id"] = MESSAGE_ID
    if "If-Match" in (case.headers or {}):
        # One says the version, not both.
        body.pop("version", None)
        if path.endswith("messages/{id}") and len(body) == 0:
            body["paused"] = True


def tame_path(path):
    for name in ("topic", "group"):
        if isinstance(path.get(name), str):
            path[name] = path[name][:NAME_CHARS]
    if "partition" in path:
        path["partition"] = 0


# Of these only the first that is there.
ALTERNATIVES = [
    ("delay", "deliver_at", "delay_level"),
    ("key", "key_base64"),
    ("day", "from"),
    ("day", "to"),
    ("every", "cron"),
    ("every", "zone"),
    ("topic", "app", "node"),
]


def tame_query(query):
    for names in ALTERNATIVES:
        present = [name for name in names if name in query]
        for name in present[1:]:
            del query[name]
    if "every" not in query and "cron" not in query:
        for name in ("zone", "count"):
            query.pop(name, None)
    query.pop("until", None)
    if "series" in query:
        # Which there are depends on what is asked about; this one there always is.
        query["series"] = "scheduled"
    for name, value in list(query.items()):
        query[name] = tamed_field(name, value)


SPAN_FIELDS = {
    "ttl", "delay", "every", "lease", "first", "interval", "max_delay", "default_ttl", "jitter", "timeout",
    "spread", "skip_older_than", "keep_old", "retention", "by", "catch_up",
}  # fmt: skip
TIME_FIELDS = {"deliver_at", "at", "execTime", "time", "from", "to"}


def tamed_field(name, value):
    if name in SPAN_FIELDS and isinstance(value, str) and not re.search("[1-9]|none|forever|all|latest", value):
        return "spread:1s" if name == "catch_up" else "1s"
    if name in TIME_FIELDS and not is_soon(value):
        return "2026-01-01T00:00:00Z"
    if name == "partition" and value is not None:
        return 0
    if name == "cron" and isinstance(value, str) and len(value.split()) not in (5, 6):
        return "* * * * *"
    if name in ("messageId", "id") and isinstance(value, str) and re.fullmatch("[0-9a-z]{32}", value):
        # A name of the sender's own must not look like one of ours.
        return "order-42"
    if name == "zone" and value is not None:
        return "Asia/Shanghai"
    if name == "day" and isinstance(value, str) and value < "1970-01-01":
        return "2030-01-31"
    return value


def is_soon(value):
    """Whether a time is one that a message can be due at."""
    if isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return value <= NOW_MS + 30 * DAY_MS
    if not isinstance(value, str):
        return True
    if value.isdigit():
        return int(value) <= NOW_MS + 30 * DAY_MS
    return bool(re.match("19[7-9][0-9]|20[01][0-9]|202[0-6]", value)) or not re.match("[0-9]{4}-", value)


def tame(node):
    if isinstance(node, list):
        return [tame(item) for item in node]
    if isinstance(node, float) and node.is_integer():
        return int(node)
    if not isinstance(node, dict):
        return node
    tamed = {}
    for name, value in node.items():
        if name in ("body", "message") and not (isinstance(value, dict) and "body" in value):
            tamed[name] = value
        elif name in ("levels", "ladder") and isinstance(value, list):
            tamed[name] = [tame(tamed_field("delay", item)) for item in value]
        elif name == "filter" and isinstance(value, dict):
            tamed[name] = tame(value)
            if value.get("id") is not None:
                tamed[name]["id"] = MESSAGE_ID
        else:
            tamed[name] = tame(tamed_field(name, value))
    tamed.pop("until", None)
    if isinstance(tamed.get("exponential"), dict):
        # The longest wait must not be shorter than the first.
        tamed["exponential"].pop("max", None)
    if isinstance(tamed.get("max_delay"), (str, int)):
        # Else what is sent to the topic afterwards would be refused.
        tamed["max_delay"] = "40d"
    if isinstance(tamed.get("push"), dict) and not tamed["push"].get("url"):
        tamed["push"]["url"] = "https://hooks.invalid/in"
    if isinstance(tamed.get("offsets"), dict):
        tamed["offsets"] = {"0": next(iter(tamed["offsets"].values()), 0)}
    return tamed
