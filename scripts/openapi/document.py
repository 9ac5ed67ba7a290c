"""Is the document legal OpenAPI 3.1, and is every example in it legal by its own schema?"""

import json
import sys
import urllib.request

from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import validate


def main(url):
    with urllib.request.urlopen(url + "/openapi.json", timeout=30) as answer:
        document = json.load(answer)
    validate(document)
    examples = 0
    for place, schema in schemas(document, []):
        Draft202012Validator.check_schema(schema)
        for example in schema.get("examples", []):
            whole = {**schema, "components": document["components"]}
            errors = list(Draft202012Validator(whole, format_checker=FormatChecker()).iter_errors(example))
            if errors:
                sys.exit(f"the example at {'/'.join(place)}: {errors[0].message}")
            examples += 1
    operations = sum(len([key for key in path if key != "parameters"]) for path in document["paths"].values())
    print(f"legal: {operations} operations, {len(document['components']['schemas'])} shapes, {examples} examples")


def schemas(node, place):
    """Every schema of the document, and where it is."""
    if isinstance(node, dict):
        inside = place[:2] == ["components", "schemas"] and len(place) > 2 or place[-1:] == ["schema"]
        # Below this word there are names of fields, not words of a schema.
        if inside and place[-1] != "properties":
            yield place, node
        for key, value in node.items():
            if key not in ("examples", "enum", "required", "default"):
                yield from schemas(value, place + [key])
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from schemas(value, place + [str(index)])


main(sys.argv[1])
