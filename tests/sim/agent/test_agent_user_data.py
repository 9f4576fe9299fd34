"""What a host reads from its bootstrap data, and what a Node is made of."""

import msgspec
import pytest

from bigfleet.model.crd import Taint
from bigfleet.operator.bootstrap.template import JoinFacts, LiveTemplate
from bigfleet.sim.agent.node import manifest, may_set
from bigfleet.sim.agent.user_data import ARGUMENTS, KUBECONFIG, MAX_BYTES, Bootstrap, UserDataError, read
from tests.sim.agent.made_user_data import (
    CA,
    CONFIG,
    SHAPE,
    TOKEN,
    user_data,
)


def test_the_default_template_is_read() -> None:
    assert read(user_data()) == Bootstrap(
        server="https://10.0.0.1:6443",
        ca=CA,
        token=TOKEN,
        node_name="m-1",
        labels={"a": "b", "example.com/c": ""},
        taints=(
            Taint(key="k", value="v", effect="NoSchedule"),
            Taint(key="x", effect="NoExecute"),
        ),
    )


@pytest.mark.parametrize(
    "arguments", ["KUBELET_EXTRA_ARGS=\n", 'KUBELET_EXTRA_ARGS=""\n', "OTHER=1\nKUBELET_EXTRA_ARGS= \n"]
)
def test_arguments_may_be_left_out(arguments: str) -> None:
    found = read(user_data(arguments=arguments))
    assert (found.node_name, found.labels, found.taints) == ("", {}, ())


def test_arguments_may_be_quoted_as_a_whole() -> None:
    found = read(user_data(arguments='KUBELET_EXTRA_ARGS="--hostname-override=n --node-labels=a=b"\n'))
    assert (found.node_name, found.labels) == ("n", {"a": "b"})


@pytest.mark.parametrize(
    ("blob", "problem"),
    [
        (b"\xff", "no UTF-8 text"),
        (b"#!/bin/sh\necho hello\n", "must begin with the line #cloud-config"),
        (b"#cloud-config\n" + b" " * MAX_BYTES, f"at most {MAX_BYTES} are taken"),
        (b"#cloud-config\nwrite_files: [", "user data: line "),
        (b"#cloud-config\nwrite_files: 3\n", "user data: Expected `array`"),
        (b"#cloud-config\nruncmd: []\n", f"{KUBECONFIG} is missing"),
        (b"#cloud-config\n", "user data: Expected `object`, got `null`"),
        (user_data(arguments=""), f"{ARGUMENTS} is missing"),
        (
            user_data().replace(b"    content: |", b"    encoding: b64\n    content: |", 1),
            "encoding 'b64' is not taken",
        ),
        (user_data(CONFIG.replace("https:", "http:")), "server must be an https:// address"),
        (user_data(CONFIG.replace("current-context: bootstrap", "current-context: other")), "no context 'other'"),
        (user_data(CONFIG.replace('cluster: "one", user', 'cluster: "two", user')), "no cluster 'two'"),
        (user_data(CONFIG.replace("certificate-authority-data: ", "certificate-authority-data: _")), "is no base64"),
        (user_data(CONFIG.replace(TOKEN, "")), "token is empty"),
        (user_data(CONFIG.replace("token:", "password:")), "token is empty"),
        (user_data(arguments="A=1\n"), "must have one line KUBELET_EXTRA_ARGS"),
        (user_data(arguments="KUBELET_EXTRA_ARGS=--v=9\n"), "'--v' is not known to this agent"),
        (user_data(arguments='KUBELET_EXTRA_ARGS="--v\n'), "KUBELET_EXTRA_ARGS: No closing quotation"),
        (user_data(arguments="KUBELET_EXTRA_ARGS=--node-labels=a\n"), "'a' is no key=value"),
        (user_data(arguments="KUBELET_EXTRA_ARGS=--register-with-taints=a=b:Never\n"), "is no key=value:effect"),
    ],
)
def test_what_cannot_be_used_is_named_and_no_secret_is_told(blob: bytes, problem: str) -> None:
    with pytest.raises(UserDataError) as caught:
        read(blob)
    assert problem in str(caught.value)
    assert TOKEN.partition(".")[2] not in str(caught.value)


def test_what_is_shown_of_bootstrap_data_holds_no_token() -> None:
    assert TOKEN not in repr(read(user_data()))


def test_a_node_says_what_its_machine_is() -> None:
    node = manifest("m-1", "sim://i-1", SHAPE, read(user_data()))
    assert node["spec"]["providerID"] == "sim://i-1"
    assert list(node["spec"]["taints"]) == [
        {"key": "k", "effect": "NoSchedule", "value": "v"},
        {"key": "x", "effect": "NoExecute"},
    ]
    assert node["status"]["capacity"] == {"cpu": "2", "memory": "8Gi", "pods": "110"}
    assert node["status"]["allocatable"] == {"cpu": "1900m", "memory": "7Gi", "pods": "110"}
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.33.2"
    labels = node["metadata"]["labels"]
    assert (
        labels.items()
        >= {
            "kubernetes.io/hostname": "m-1",
            "kubernetes.io/arch": "arm64",
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "eu-1a",
            "topology.kubernetes.io/region": "eu-1",
            "topology.bigfleet.lucy.sh/rack": "r1",
            "bigfleet.lucy.sh/capacity-type": "Spot",
            "a": "b",
        }.items()
    )
    assert "node-role.kubernetes.io/edge" not in labels


@pytest.mark.parametrize(
    ("label", "may"),
    [
        ("app", True),
        ("example.com/a", True),
        ("kubernetes.io/hostname", True),
        ("node.kubernetes.io/anything", True),
        ("x.kubelet.kubernetes.io/y", True),
        ("kubernetes.io/other", False),
        ("node-restriction.kubernetes.io/a", False),
        ("a.k8s.io/b", False),
        ("notkubernetes.io/b", True),
    ],
)
def test_which_labels_a_node_may_set(label: str, may: bool) -> None:
    assert may_set(label) is may


def test_what_the_operator_renders_by_default_is_read() -> None:
    facts = JoinFacts(
        cluster_id="shop",
        endpoint="https://10.0.0.1:6443",
        ca_bundle=CA.decode(),
        token=TOKEN,
        kubernetes_version="v1.34.4",
        machine_id="a-1",
        node_name="m-1",
        node_selector={"a": "b", "example.com/c": "d"},
        taints=({"key": "k", "value": "v", "effect": "NoSchedule"},),
    )
    found = read(LiveTemplate.start(None).current().render(facts))
    assert (found.server, found.token, found.node_name) == ("https://10.0.0.1:6443", TOKEN, "m-1")
    assert found.ca.strip() == CA.strip()
    assert found.labels == {"a": "b", "example.com/c": "d"}
    assert found.taints == (Taint(key="k", value="v", effect="NoSchedule"),)
    bare = read(LiveTemplate.start(None).current().render(msgspec.structs.replace(facts, node_selector={}, taints=())))
    assert (bare.labels, bare.taints) == ({}, ())
