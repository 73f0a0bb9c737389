# SPDX-License-Identifier: Apache-2.0
"""Validates JSON files against a JSON Schema. It supports only the keywords of txtopo's schema; an unknown one fails.

    check_schema.py SCHEMA FILE...     a name that begins with "bad" must fail
"""
import json
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "$id", "title", "description", "type", "properties", "required", "additionalProperties", "items",
         "enum", "const", "minimum", "pattern", "$defs", "$ref"}

DEFINITIONS = {}


def is_type(value, name):
    if name in ("integer", "number"):
        kinds = int if name == "integer" else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def problems(value, schema, where):
    if "$ref" in schema:
        yield from problems(value, DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")], where)
    unknown = set(schema) - KNOWN
    if unknown:
        raise SystemExit(f"the schema uses {unknown}, which this checker does not know")
    kinds = schema.get("type", [])
    if kinds and not any(is_type(value, k) for k in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{where}: {value!r} is no {kinds}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not among {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r} is not {schema['const']!r}"
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        yield f"{where}: {value} is below {schema['minimum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, dict):
        for key in schema.get("required", []):
            if key not in value:
                yield f"{where}: {key} is missing"
        for key, member in value.items():
            if key in schema.get("properties", {}):
                yield from problems(member, schema["properties"][key], f"{where}.{key}")
            elif schema.get("additionalProperties") is False:
                yield f"{where}: {key} is not in the schema"
    if isinstance(value, list) and "items" in schema:
        for i, element in enumerate(value):
            yield from problems(element, schema["items"], f"{where}[{i}]")


def main():
    with open(sys.argv[1]) as f:
        schema = json.load(f)
    DEFINITIONS.update(schema["$defs"])
    failed = False
    for path in sys.argv[2:]:
        with open(path) as f:
            found = list(problems(json.load(f), schema, "root"))
        bad = path.rsplit("/", 1)[-1].startswith("bad")
        if bool(found) != bad:
            failed = True
            print(f"{path}:", *(found[:5] or ["valid, but it must not be"]), sep="\n    ")
    sys.exit(failed)


main()
