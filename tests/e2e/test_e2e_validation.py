"""The API server itself refuses what cannot be demand, in words that name the field."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.sim.controlplane.cluster import ControlPlane
from bigfleet.sim.controlplane.errors import ControlPlaneError

_ROOT = Path(__file__).parents[2]
_FIELD, _MESSAGE = "test.bigfleet.lucy.sh/field", "test.bigfleet.lucy.sh/message"
INVALID: list[dict[str, Any]] = list(
    yaml.safe_load_all((_ROOT / "tests/model/invalid_capacity_requests.yaml").read_text())
)
EXAMPLES = {path.name: path.read_text() for path in sorted((_ROOT / "examples" / "capacity-requests").glob("*.yaml"))}


async def test_every_invalid_request_is_refused_with_its_field_and_its_reason(control_plane: ControlPlane) -> None:
    assert len(INVALID) >= 40
    wrong = []
    for document in INVALID:
        annotations = document["metadata"]["annotations"]
        try:
            await control_plane.kubectl("create", "--validate=ignore", "--filename=-", stdin=json.dumps(document))
        except ControlPlaneError as error:
            if annotations[_FIELD] not in str(error) or annotations[_MESSAGE] not in str(error):
                wrong.append(f"{document['metadata']['name']}: {error}")
        else:
            wrong.append(f"{document['metadata']['name']}: taken")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
async def test_every_example_is_taken(control_plane: ControlPlane, text: str) -> None:
    for namespace in {each["metadata"].get("namespace", "default") for each in yaml.safe_load_all(text)} - {"default"}:
        made = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await control_plane.kubectl("apply", "--filename=-", stdin=made)
    assert "created" in await control_plane.kubectl("apply", "--filename=-", stdin=text)
