"""Holds what is in deploy/ and the table of docs/OPERATING.md to the metrics of a running server.

Usage: deploy-check.py METRICS RULES_OUT, where METRICS is the text of /metrics. Every name that the dashboard
and the rules use must be there, and so must every name of the table be, and the other way round; what only a
cluster or Kafka brings has a table of its own. The queries of the dashboard are written to RULES_OUT as rules,
for promtool to read.
"""

import json
import re
import sys

NAME = re.compile(r"\b(?:punctual|process)_[a-z_]+\b")
# What queries of a dashboard have in place of values.
VARIABLES = {"$__rate_interval": "5m", "$instance": "n1", "$job": "punctual"}


def exposed(text):
    """The metrics of the text and the names of their lines."""
    metrics, lines = set(), set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            metrics.add(name)
            lines |= series(name, kind)
    return metrics, lines


def series(name, kind):
    """The names under which a metric has lines."""
    return {name + end for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}


def documented(heading):
    """The metrics of the table below a heading, with their kinds."""
    with open("docs/OPERATING.md", encoding="utf-8") as file:
        page = file.read()
    part = page.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `([a-z_]+)(?:\{[a-z,]*\})?` \| (\w+) \|", part, re.MULTILINE)
    if not rows:
        sys.exit(f"no metric is named below {heading}")
    return dict(rows)


def queries(value):
    """Every query of the dashboard."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "definition") and isinstance(inner, str):
                yield key, inner
            else:
                yield from queries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from queries(inner)


def as_rules(expressions):
    """The queries as rules that promtool reads."""
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for number, expression in enumerate(expressions):
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        if "$" in expression:
            sys.exit(f"the dashboard asks for {expression}, and that has an unknown variable")
        lines += [f"      - record: dashboard:query:{number}", f"        expr: {json.dumps(expression)}"]
    return "\n".join(lines) + "\n"


def main(metrics_file, rules_out):
    with open(metrics_file, encoding="utf-8") as file:
        metrics, lines = exposed(file.read())
    here, outside = documented("Of every server"), documented("Of a cluster and of Kafka")
    faults = [f"{name} is told by the server, and not in the table" for name in metrics - here.keys() - outside.keys()]
    faults += [f"{name} is in the table, and not told by the server" for name in here.keys() - metrics]
    for name, kind in outside.items():
        lines |= series(name, kind)

    with open("deploy/grafana/punctual.json", encoding="utf-8") as file:
        dashboard = list(queries(json.load(file)))
    with open("deploy/prometheus/alerts.yml", encoding="utf-8") as file:
        alerts = file.read()
    used = {"the dashboard": " ".join(query for _, query in dashboard), "alerts.yml": alerts}
    for who, text in used.items():
        names = set(NAME.findall(text))
        if len(names) < 10:
            faults.append(f"{who} names only {len(names)} metrics")
        faults += [f"{who} uses {name}, which no server tells" for name in names - lines]
    if faults:
        sys.exit("\n".join(sorted(faults)))

    expressions = [query for key, query in dashboard if key == "expr"]
    with open(rules_out, "w", encoding="utf-8") as file:
        file.write(as_rules(expressions))
    print(f"checked: {len(metrics)} metrics, {len(expressions)} queries of the dashboard")


main(*sys.argv[1:])
