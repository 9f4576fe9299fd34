"""The manifests can be deleted one after the other: the first to go takes nothing of the other with it."""

import yaml

from tests.shared.command_line import ROOT


def objects(file: str) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of all that a manifest holds."""
    documents = yaml.safe_load_all((ROOT / "deploy" / file).read_text())
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in documents}


def test_deleting_the_pod_controller_leaves_the_operator_alone() -> None:
    pod_controller, operator = objects("pod-controller.yaml"), objects("operator.yaml")
    assert ("Namespace", "", "bigfleet-system") in operator
    assert pod_controller & operator == set()
    assert not any(kind == "Namespace" for kind, _, _ in pod_controller)
