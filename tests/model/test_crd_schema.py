"""The CRD files: sane structural schemas, equal to the contract and to the structs, strict where they must be."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import inspect

from bigfleet.model.crd import AvailableCapacity, CapacityRequest, UpcomingNode

ROOT = Path(__file__).parents[2]
STRUCTS = {
    "capacityrequests": CapacityRequest,
    "availablecapacities": AvailableCapacity,
    "upcomingnodes": UpcomingNode,
}
CRDS: dict[str, Any] = {
    plural: yaml.safe_load((ROOT / f"api/crd/bigfleet.lucy.sh_{plural}.yaml").read_text()) for plural in STRUCTS
}
SCHEMAS: dict[str, Any] = {
    plural: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for plural, crd in CRDS.items()
}
INVALID: list[Any] = list(yaml.safe_load_all((Path(__file__).parent / "invalid_capacity_requests.yaml").read_text()))
EXAMPLES = [
    pytest.param(document, id=f"{path.name}-{document['metadata']['name']}")
    for folder in ("capacity-requests", "status")
    for path in sorted((ROOT / "examples" / folder).glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]

# What the contract says of each kind, word for word where it has words.
CONTRACT = {
    "capacityrequests": {
        "scope": "Namespaced",
        "shortNames": ["cr", "crs"],
        "spec": "requirements resources priority interruptionPenalty reclamationPenalty topologySpread coLocation "
        "maxPerNode",
        "required": {"resources", "priority"},
        "status": "phase acknowledgedAt",
        "columns": {"Phase", "Priority", "Age"},
    },
    "availablecapacities": {
        "scope": "Cluster",
        "shortNames": ["avc"],
        "spec": "requirements resources availableCount availability cost nodeTemplate supportsAtomicProvisioning "
        "estimatedProvisioningTime",
        "required": set(),
        "status": "",
        "columns": {"Availability", "Cost", "Age"},
    },
    "upcomingnodes": {
        "scope": "Cluster",
        "shortNames": ["upn"],
        "spec": "labels resources taints",
        "required": {"resources"},
        "status": "phase nodeRef providerID lastError provisioningStartTime estimatedReadyTime",
        "columns": {"Phase", "Node", "Age"},
    },
}
OPERATORS = "In NotIn Exists DoesNotExist"
ENUMS = {
    ("capacityrequests", "spec.requirements[].operator"): OPERATORS,
    ("capacityrequests", "spec.topologySpread[].whenUnsatisfiable"): "DoNotSchedule ScheduleAnyway",
    ("capacityrequests", "spec.coLocation.labelSelector.matchExpressions[].operator"): OPERATORS,
    ("capacityrequests", "status.phase"): "Pending Acknowledged",
    ("availablecapacities", "spec.requirements[].operator"): OPERATORS,
    ("availablecapacities", "spec.availability"): "None Low Medium High",
    ("availablecapacities", "spec.nodeTemplate.taints[].effect"): "NoSchedule PreferNoSchedule NoExecute",
    ("upcomingnodes", "spec.taints[].effect"): "NoSchedule PreferNoSchedule NoExecute",
    ("upcomingnodes", "status.phase"): "Provisioning Launched Registered Ready Draining Drained Failed",
}
UNSTRUCTURAL = {
    *("$ref", "definitions", "dependencies", "deprecated", "discriminator", "id", "patternProperties", "readOnly"),
    *("uniqueItems", "writeOnly", "xml", "x-kubernetes-preserve-unknown-fields", "anyOf", "allOf", "oneOf", "not"),
}


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every node of a schema with its path: `spec.requirements[].key`, `spec.resources.*`."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}.*")


ALL_NODES = [
    pytest.param(path, node, id=f"{plural}:{path or 'root'}")
    for plural, schema in SCHEMAS.items()
    for path, node in nodes(schema)
]


def faults(schema: Any, value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """What the schema alone, without its CEL rules, holds against a value: fields and words as the API server's."""
    kind = "integer,string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    actual = kinds[type(value)]
    if actual not in kind.split(","):
        yield path, f"must be of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield path, "supported values: " + ", ".join(f'"{choice}"' for choice in schema["enum"])
    if actual == "integer":
        if value < schema.get("minimum", value):
            yield path, f"should be greater than or equal to {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield path, f"should be less than or equal to {schema['maximum']}"
    elif actual == "string":
        if len(value) > schema.get("maxLength", len(value)):
            yield path, f"may not be more than {schema['maxLength']} bytes"
        if "pattern" in schema and not matches(schema["pattern"], value):
            yield path, f"should match '{schema['pattern']}'"
    elif actual == "array":
        if len(value) > schema.get("maxItems", len(value)):
            yield path, f"must have at most {schema['maxItems']} items"
        keys = [tuple(item.get(key) for key in schema.get("x-kubernetes-list-map-keys", ())) for item in value]
        for index, item in enumerate(value):
            if keys[index] and keys[index] in keys[:index]:
                yield f"{path}[{index}]", "Duplicate value"
            yield from faults(schema["items"], item, f"{path}[{index}]")
    elif actual == "object":
        if len(value) < schema.get("minProperties", 0):
            yield path, f"should have at least {schema['minProperties']} properties"
        if len(value) > schema.get("maxProperties", len(value)):
            yield path, f"must have at most {schema['maxProperties']} items"
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}".lstrip("."), "Required value"
        for name, item in value.items():
            child = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if child is None and path != "metadata":
                yield f"{path}.{name}", "unknown field"
            elif child is not None:
                yield from faults(child, item, f"{path}.{name}".lstrip("."))


def matches(pattern: str, text: str) -> bool:
    """Whether the text matches, `$` being the very end as in Go, where Python lets a newline follow."""
    return re.search(pattern.removesuffix("$") + r"\Z", text) is not None


def at(schema: Any, field: str) -> Any:
    """The node that a field of an object belongs to: `spec.requirements[0].key`, `spec.resources[cpu]`."""
    for step in re.findall(r"\w+", field):
        if step.isdigit():
            schema = schema["items"]
        else:
            schema = schema.get("properties", {}).get(step) or schema["additionalProperties"]
    return schema


@pytest.mark.parametrize("plural", STRUCTS)
def test_a_crd_is_named_and_shaped_as_the_contract_says(plural: str) -> None:
    crd, contract = CRDS[plural], CONTRACT[plural]
    spec, (version,) = crd["spec"], crd["spec"]["versions"]
    kind = STRUCTS[plural].__name__
    assert crd["metadata"]["name"] == f"{plural}.bigfleet.lucy.sh"
    assert (spec["group"], spec["scope"]) == ("bigfleet.lucy.sh", contract["scope"])
    assert spec["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": contract["shortNames"],
        "categories": ["fleet"],
    }
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}
    of_spec, of_status = SCHEMAS[plural]["properties"]["spec"], SCHEMAS[plural]["properties"]["status"]
    assert (" ".join(of_spec["properties"]), set(of_spec.get("required", ()))) == (
        contract["spec"],
        contract["required"],
    )
    assert " ".join(of_status.get("properties", ())) == contract["status"]


@pytest.mark.parametrize("plural", STRUCTS)
def test_every_printed_column_shows_a_field_that_exists(plural: str) -> None:
    columns = CRDS[plural]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert {column["name"] for column in columns} >= set(CONTRACT[plural]["columns"])
    paths = [column["jsonPath"].removeprefix(".") for column in columns]
    assert [path for path in paths if path != "metadata.creationTimestamp" and not at(SCHEMAS[plural], path)] == []


def test_a_request_is_pending_from_its_creation_and_found_by_its_phase() -> None:
    assert CRDS["capacityrequests"]["spec"]["versions"][0]["selectableFields"] == [{"jsonPath": ".status.phase"}]
    assert SCHEMAS["capacityrequests"]["properties"]["status"]["default"] == {"phase": "Pending"}


def test_every_enum_is_the_contracts_and_there_is_no_other() -> None:
    found = {
        (plural, path): " ".join(node["enum"])
        for plural, schema in SCHEMAS.items()
        for path, node in nodes(schema)
        if "enum" in node
    }
    assert found == ENUMS


@pytest.mark.parametrize(("path", "node"), ALL_NODES)
def test_a_node_is_structural_described_and_bounded(path: str, node: Any) -> None:
    assert not UNSTRUCTURAL & node.keys()
    if path == "metadata":
        assert node == {"type": "object"}, "the API server takes nothing else here"
        return
    assert node["description"].endswith(".")
    kind = "quantity" if node.get("x-kubernetes-int-or-string") else node["type"]
    if kind == "quantity":
        assert "type" not in node
        assert node.keys() >= {"minimum", "maxLength", "pattern", "x-kubernetes-validations"}
    elif kind == "string" and path not in ("apiVersion", "kind"):
        assert node.keys() & {"maxLength", "enum"} or node["format"] == "date-time"
    elif kind == "integer":
        assert node["format"] == "int32"
        assert node.keys() >= {"minimum", "maximum"}
    elif kind == "array":
        assert node.keys() >= {"maxItems", "x-kubernetes-list-type"}
        assert set(node.get("x-kubernetes-list-map-keys", ())) <= set(node["items"].get("required", ()))
    elif kind == "object":
        assert not ("properties" in node and "additionalProperties" in node)
        assert "maxProperties" in node or "additionalProperties" not in node
        assert set(node.get("required", ())) <= set(node.get("properties", ()))
    for rule in node.get("x-kubernetes-validations", ()):
        assert ("message" in rule) != ("messageExpression" in rule), "one message, for a person"
        assert "fieldPath" not in rule or rule["fieldPath"].removeprefix(".") in node["properties"]


@pytest.mark.parametrize("plural", STRUCTS)
def test_schema_and_struct_have_the_same_fields_types_and_bounds(plural: str) -> None:
    differences = list(compare(SCHEMAS[plural], inspect.type_info(STRUCTS[plural]), ""))
    assert differences == []


def compare(node: Any, type_: Any, path: str) -> Iterator[str]:
    """Where a schema and a struct's type part."""
    if isinstance(type_, inspect.UnionType) and not node.get("x-kubernetes-int-or-string"):
        (type_,) = (option for option in type_.types if not isinstance(option, inspect.NoneType))
    match type_:
        case inspect.StructType(fields=fields):
            by_name = {field.encode_name: field for field in fields}
            if by_name.keys() != node.get("properties", {}).keys():
                yield f"{path}: fields {by_name.keys() ^ node.get('properties', {}).keys()}"
            needed = {name for name, field in by_name.items() if field.required} - {"metadata"}
            if not needed <= set(node.get("required", ())):
                yield f"{path}: the struct needs {needed}"
            for name in by_name.keys() & node["properties"].keys() - {"metadata"} if by_name else ():
                yield from compare(node["properties"][name], by_name[name].type, f"{path}.{name}".lstrip("."))
        case inspect.VarTupleType(item_type=item):
            yield from compare(node["items"], item, f"{path}[]")
        case inspect.DictType(value_type=value):
            yield from compare(node["additionalProperties"], value, f"{path}.*")
        case inspect.LiteralType(values=values):
            if path not in ("apiVersion", "kind") and set(values) != set(node["enum"]):
                yield f"{path}: {values} is not {node['enum']}"
        case inspect.UnionType(types=types):
            if {type(option) for option in types} != {inspect.StrType, inspect.IntType}:
                yield f"{path}: {types} is no quantity"
        case inspect.IntType(ge=least, le=most):
            if (node["type"], node["minimum"], node["maximum"]) != ("integer", least, most):
                yield f"{path}: bounds {least} to {most} differ"
        case _:
            wanted: dict[Any, tuple[str, str | None]] = {
                inspect.StrType: ("string", None),
                inspect.BoolType: ("boolean", None),
                inspect.DateTimeType: ("string", "date-time"),
            }
            if wanted[type(type_)] != (node["type"], node.get("format")):
                yield f"{path}: {type_} is not {node['type']}"


@pytest.mark.parametrize("document", EXAMPLES)
def test_an_example_satisfies_its_schema(document: Any) -> None:
    (plural,) = (plural for plural, struct in STRUCTS.items() if struct.__name__ == document["kind"])
    assert list(faults(SCHEMAS[plural], document)) == []


@pytest.mark.parametrize("document", [pytest.param(d, id=d["metadata"]["name"]) for d in INVALID])
def test_a_malformed_request_is_refused_where_it_is_wrong(document: Any) -> None:
    schema = SCHEMAS["capacityrequests"]
    field = document["metadata"]["annotations"]["test.bigfleet.lucy.sh/field"]
    message = document["metadata"]["annotations"]["test.bigfleet.lucy.sh/message"]
    dotted = re.sub(r"\[([^0-9]\w*)\]", r".\1", field)
    found = {words for place, words in faults(schema, document) if place == dotted}
    if re.match("Required|Duplicate|supported|must be of|must have|may not|should", message):
        assert message in found
    else:
        # The sentence of a CEL rule, which only a real API server can pronounce; here it must be in the right place.
        rules = [*at(schema, field).get("x-kubernetes-validations", ())]
        parent = at(schema, field.rpartition(".")[0])
        rules += [rule for rule in parent.get("x-kubernetes-validations", ()) if "fieldPath" in rule]
        ending = " ".join(message.split()[-3:])
        assert any(ending in rule.get("message", rule.get("messageExpression")) for rule in rules)


def test_the_malformed_requests_are_many_and_told_apart() -> None:
    names = [document["metadata"]["name"] for document in INVALID]
    assert len(set(names)) == len(names) >= 40


def test_a_request_may_spread_over_one_label_in_both_modes() -> None:
    constraints = [
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
        {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"},
    ]
    assert list(faults(at(SCHEMAS["capacityrequests"], "spec.topologySpread"), constraints)) == []


@pytest.mark.parametrize("penalty", ["interruptionPenalty", "reclamationPenalty"])
def test_a_penalty_tells_its_bucket_boundaries(penalty: str) -> None:
    description = at(SCHEMAS["capacityrequests"], f"spec.{penalty}")["description"]
    assert "0; up to 0.50; up to 1; up to 2, 4, 8, 16 and so on, doubling up to 8388608" in description
    assert "more than 8388608 is pinned" in description


@pytest.mark.parametrize("plural", STRUCTS)
def test_the_largest_spec_that_passes_fits_into_an_etcd_request(plural: str) -> None:
    spec = SCHEMAS[plural]["properties"]["spec"]
    assert len(msgspec.json.encode(largest(spec))) < 1.5 * 1024 * 1024


def largest(node: Any) -> Any:
    """A value as large as its schema allows."""
    if node.get("type") == "object" and "additionalProperties" in node:
        return {f"{n:0317}": largest(node["additionalProperties"]) for n in range(node["maxProperties"])}
    if node.get("type") == "object":
        return {name: largest(child) for name, child in node["properties"].items()}
    if node.get("type") == "array":
        return [largest(node["items"])] * node["maxItems"]
    if node.get("type") == "integer":
        return node["maximum"]
    if node.get("type") == "boolean":
        return False
    return "x" * (node["maxLength"] if "maxLength" in node else max(map(len, node["enum"])))
