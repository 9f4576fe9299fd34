"""Bootstrap templates: both spellings, what is refused at the start, what rendering may not do, the built-in one."""

import itertools
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bigfleet.operator.bootstrap.sandbox import kubelet_labels
from bigfleet.operator.bootstrap.template import (
    MAX_BLOB_BYTES,
    BootstrapTemplate,
    BootstrapTemplateError,
    JoinFacts,
    LiveTemplate,
    RenderError,
)
from bigfleet.providerkit.server import service
from bigfleet.shard.sessions import session

CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
FACTS = JoinFacts(
    cluster_id="prod",
    machine_id="m-1",
    node_name="node-1",
    provider_id="sim://h1",
    node_selector={"zone": "a", "disk": "ssd"},
    taints=(
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "value": "", "effect": "NoExecute"},
    ),
    token="abcdef.0123456789abcdef",
    ca_bundle=CA,
    endpoint="https://10.0.0.1:6443",
    kubernetes_version="v1.34.4",
    kubelet_config={"kind": "KubeletConfiguration", "clusterDNS": ["10.96.0.10"]},
)


def rendered(text: str, facts: JoinFacts = FACTS) -> str:
    return BootstrapTemplate("a.j2", text).render(facts).decode()


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{{ ClusterID }}/{{ .ClusterID }}/{{.ClusterID}}/{{- .ClusterID -}} /", "prod/prod/prod/prod/"),
        ("{{ .MachineID }} {{ .NodeName }} {{ .ProviderID }}", "m-1 node-1 sim://h1"),
        ("{{ .Token }} {{ .Endpoint }} {{ .KubernetesVersion }}", f"{FACTS.token} {FACTS.endpoint} v1.34.4"),
        ("{{ range $k, $v := .NodeSelector }}{{ $k }}={{ $v }};{{ end }}", "disk=ssd;zone=a;"),
        ("{{ range $v := .NodeSelector }}{{ $v }};{{ end }}", "ssd;a;"),
        ("{{ range .Taints }}{{ .Key }}={{ .Value }}:{{ .Effect }}@{{ $.ClusterID }};{{ end }}",
         "gpu=yes:NoSchedule@prod;spot=:NoExecute@prod;"),
        ("{{ range $i, $t := .Taints }}{{ $i }}{{ $t.Key }};{{ end }}", "0gpu;1spot;"),
        ("{{ range .Taints }}{{ range $.NodeSelector }}{{ . }}{{ end }}{{ .Key }};{{ end }}", "ssdagpu;ssdaspot;"),
        ("{% for t in Taints %}{{ t.key }};{% endfor %}", "gpu;spot;"),
        ("{{ if .Token }}yes{{ else }}no{{ end }}", "yes"),
        ('{{ if eq .ClusterID "dev" }}d{{ else if ne .MachineID "m-2" }}m{{ else }}-{{ end }}', "m"),
        ("{{ if not .Taints }}none{{ else }}{{ len .Taints }}{{ end }}", "2"),
        ('{{ index .NodeSelector "zone" }} {{ .NodeSelector.disk }} {{ NodeSelector["disk"] }}', "a ssd ssd"),
        ('{{ if (eq (index .NodeSelector "zone") "a") }}in a{{ end }}', "in a"),
        ("{{ .ClusterID | base64 }} {{ ClusterID | base64 }}", "cHJvZA== cHJvZA=="),
        ("{{ .CABundle | indent 2 }}", CA.rstrip().replace("\n", "\n  ")),
        ("{{ .CABundle | indent(2) }}", CA.rstrip().replace("\n", "\n  ")),
        ("{{ .NodeSelector | to_json }}", '{"zone": "a", "disk": "ssd"}'),
        ("{{ .KubeletConfig | to_yaml }}", "clusterDNS:\n- 10.96.0.10\nkind: KubeletConfiguration"),
        ("{% if .Token %}{{ .ClusterID ~ '.example' }}{% endif %}", "prod.example"),
        ('{{ "a.ClusterID" }} {{ `b"c\\d` }}', 'a.ClusterID b"c\\d'),
        ('{{ "x".upper() }}{{ \'y\'.upper() }}{{ "a" ~ .ClusterID }}', "XYaprod"),
        ("a{{/* .Nothing */}}b{# .Nothing #}c", "abc"),
        ("{% raw %}{{ .Nothing }}{% endraw %}", "{{ .Nothing }}"),
        ("x.Token .Token {.Token}\n", "x.Token .Token {.Token}\n"),
    ],
)  # fmt: skip
def test_both_spellings_mean_the_same(text: str, made: str) -> None:
    assert rendered(text) == made


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a\nb {{ .Foo }}", 2, "there is no variable 'Foo': known are ClusterID, MachineID, NodeName"),
        ("{{ Foo }}", 1, "there is no variable 'Foo'"),
        ("{% for i in range(9) %}{% endfor %}", 1, "there is no variable 'range'"),
        ("\n\n{{ range $x := .Foo }}{{ end }}", 3, "there is no variable 'Foo'"),
        ("{{ $x }}", 1, "there is no variable 'x'"),
        ("\n{{ if .Token }}", 2, "{{ if }} has no {{ end }}"),
        ("\n{{ end }}", 2, "{{ end }} without {{ if }}"),
        ("{{ with .Token }}{{ end }}", 1, "write {{ if .X }}"),
        ('\n\n{{ printf "%s" .Token }}', 3, "printf }} is not taken: write the text around"),
        ('{{ .Token | printf "%s" }}', 1, "printf is not taken"),
        ("{{ $x := .Token }}", 1, "name its value where it is used"),
        ("{{ . }}", 1, "the dot alone"),
        ("{{ if }}{{ end }}", 1, "is no value: write .X"),
        ("{{ eq .Token }}", 1, "eq does not take 1 arguments"),
        ("{{ range $a, $b, $c := .Taints }}{{ end }}", 1, "range"),
        ("{{ if .Token }}{{ else with .X }}{{ end }}", 1, "write {{ else }}"),
        ("{{ if\n.Token }}\n{{ .Foo }}{{ end }}", 3, "there is no variable 'Foo'"),
        ("a\n{{ ClusterID | nope }}", 2, "No filter named 'nope'"),
        ("a\n{{ ClusterID", 2, "unexpected end of template"),
        ("{% include 'x' %}", 1, "other file"),
        ("{% import 'x' as y %}", 1, "other file"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_line(text: str, line: int, says: str) -> None:
    with pytest.raises(BootstrapTemplateError) as raised:
        BootstrapTemplate("a.j2", text)
    assert str(raised.value).startswith(f"a.j2: line {line}: ")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ NodeSelector.gone }}", "has no attribute 'gone'"),
        ("{{ NodeSelector[Token] }}", "looks up by another value"),
        ("{{ NodeSelector[Token[3:] ~ 'x'] }}", "looks up by another value"),
        ("{{ NodeSelector[(Token,)] }}", "looks up by another value"),
        ('{{ "a" * 999999999 }}', "may not use '*'"),
        ('{{ "%999999999d" % 1 }}', "may not use '%'"),
        ("{{ 9 ** 999999 }}", "may not use '**'"),
        ("{{ Token.__class__.__mro__ }}", "SecurityError"),
        ("{{ Taints.append(1) }}", "SecurityError"),
        ("{{ Token | indent(1000000) }}", "indent takes 0 to 100"),
        ("{{ Token + 1 }}", "TypeError at rendering"),
        ("\n{{ .Taints | kubelet_labels }}", "a.j2: line 2: AttributeError at rendering"),
        ("{{ Token | truncate(1) }}", "AssertionError at rendering"),
        ("{{ Token | center(10000000000) }}", "center takes no number above 10000"),
        ("{{ Token | map('center', 10000000000) | join }}", "center takes no number above 10000"),
        ("{{ Token.ljust(10000000000) }}", "ljust takes no number above 10000"),
        ("{{ (1).to_bytes(length=10000000000, byteorder='big') }}", "to_bytes takes no number above 10000"),
        ("{{ Taints | batch(10000000000, 'x') | list }}", "batch takes no number above 10000"),
        ("{{ Taints | slice(10000000000) | list }}", "slice takes no number above 10000"),
        ("{{ Taints | tojson(indent=10000000000) }}", "tojson takes no number above 10000"),
        ("{{ 1.5 | round(10000000000, 'ceil') }}", "round takes no number above 10000"),
        ('{{ "{:9999999999}".format(Token) }}', "format takes no width"),
        ('{{ "{:{}}".format(Token, 9999999999) }}', "format takes no width"),
        ('{{ "%9999999999s" | format(Token) }}', "format takes no width"),
        ('{{ "%(a)-9999999999s" | format(a=Token) }}', "format takes no width"),
        ('{{ "%*s" | format(9999999999, Token) }}', "format takes no width"),
        ('{{ "%.9999999999f" | format(1) }}', "format takes no width"),
        ("{% if false %}x{% endif %}", "made nothing"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError"),
        (
            "{% for a in CABundle %}" * 3 + "{{ CABundle }}" * 20 + "{% endfor %}" * 3,
            f"than the {MAX_BLOB_BYTES} bytes",
        ),
    ],
)
def test_rendering_reaches_nothing_and_ends(text: str, says: str) -> None:
    with pytest.raises(RenderError) as raised:
        rendered(text)
    assert says in str(raised.value)
    assert FACTS.token[-8:] not in str(raised.value)


def test_widths_that_are_of_use_are_taken() -> None:
    text = (
        '{{ "%5s|%s" | format(1, 2) }} {{ "{:>4}|{}".format(1, 98765) }} {{ "x" | center(3) }} {{ "7".zfill(3) }} '
        "{{ 98765 | tojson }} {{ 1.25 | round(1, 'floor') }} {{ [1, 2, 3] | batch(2) | list }}"
    )
    assert rendered(text) == "    1|2    1|98765  x  007 98765 1.2 [[1, 2], [3]]"


def test_rendering_ends_in_time_though_it_makes_nothing() -> None:
    ticks = itertools.count(step=0.01)
    template = BootstrapTemplate("a.j2", "{% for a in CABundle %}" * 5 + "{% endfor %}" * 5)
    with pytest.raises(RenderError, match="not done after 2 s"):
        template.render(FACTS, clock=lambda: next(ticks))


def test_a_blob_may_be_as_large_as_providers_take_and_no_larger() -> None:
    assert service.MAX_BLOB_BYTES == session.MAX_BLOB_BYTES == MAX_BLOB_BYTES
    assert len(rendered("x" * MAX_BLOB_BYTES)) == MAX_BLOB_BYTES
    with pytest.raises(RenderError, match=f"{MAX_BLOB_BYTES} bytes"):
        rendered("x" * (MAX_BLOB_BYTES + 1))


def test_facts_do_not_show_the_token() -> None:
    assert FACTS.token not in repr(FACTS)


# The file.


def test_a_changed_file_is_taken_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "t.j2"
    path.write_text("one")
    live = LiveTemplate.start(path)
    path.write_text("two {{ .ClusterID }}")
    assert live.current().render(FACTS) == b"two prod"
    for bad in (b"{{ .Nope }}", b"{{ .Taints | kubelet_labels }}", b"\xff", b"x" * (1 << 20) + b"x"):
        path.write_bytes(bad)
        assert live.current().render(FACTS) == b"two prod"
    path.unlink()
    assert live.current().render(FACTS) == b"two prod"
    path.write_text("three")
    assert live.current().render(FACTS) == b"three"


def test_a_version_that_was_refused_is_tried_and_said_once(tmp_path: Path) -> None:
    path = tmp_path / "t.j2"
    path.write_text("one")
    live = LiveTemplate.start(path)
    with capture_logs() as logs:
        for text in ("{{ .Taints | kubelet_labels }}", "one", "{{ .Taints | kubelet_labels }}"):
            path.write_text(text)
            for _ in range(3):
                assert live.current().render(FACTS) == b"one"
    assert [log["event"] for log in logs] == ["bootstrap_template_refused"] * 2
    assert "line 1: AttributeError: 'list' object has no attribute 'items'" in logs[0]["reason"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a\n{{ .Taints | kubelet_labels }}", 2, "AttributeError: 'list' object has no attribute 'items'"),
        ("{{ Token | truncate(1) }}", 1, "AssertionError"),
        ("\n\n{{ Token | center(10000000000) }}", 3, "center takes no number above 10000"),
        ("{% if NodeSelector.gpu %}{{ Token + 1 }}{% endif %}", 1, "TypeError"),
        ("{% for a in Taints %}" * 30 + "{% endfor %}" * 30, 0, "cannot be compiled: SyntaxError"),
    ],
)
def test_a_mistake_that_shows_at_rendering_stops_the_start(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "t.j2"
    path.write_text(text)
    with pytest.raises(BootstrapTemplateError) as raised:
        LiveTemplate.start(path)
    assert raised.value.line == line
    assert says in raised.value.problem


@pytest.mark.parametrize(
    "text",
    [
        "{{ NodeSelector.gpu }} {{ NodeSelector['a/b'] | int + 1 }} {{ 8 // (NodeSelector.cpu | int) }}",
        "{{ KubeletConfig.evictionHard.memory }} {{ Taints[7].key }}",
        '{{ if eq .ClusterID "other" }}x{{ end }}',
        "{{ KubernetesVersion.split('.')[1] | int }} {{ Taints[0].effect }}",
    ],
)
def test_what_only_some_machines_have_does_not_stop_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.j2"
    path.write_text(text)
    assert LiveTemplate.start(path).current().text == text


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file"), (b"\xff", "not UTF-8"), (b"x" * ((1 << 20) + 1), "larger than")]
)
def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "t.j2"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BootstrapTemplateError, match=f"--bootstrap-template-file {path}.*{says}"):
        LiveTemplate.start(path)


# The built-in template.


BUILT_IN = LiveTemplate.start(None).current()


def built_in(**facts: Any) -> dict[str, str]:
    """The files that it writes, by path."""
    text = BUILT_IN.render(msgspec.structs.replace(FACTS, **facts)).decode()
    assert text.startswith("#cloud-config\n")
    data = yaml.safe_load(text)
    assert ["systemctl", "restart", "kubelet"] in data["runcmd"]
    return {each["path"]: each["content"] for each in data["write_files"]}


def arguments(files: dict[str, str]) -> list[str]:
    line = files["/etc/kubernetes/kubelet.env"]
    assert line.count("\n") == 1
    name, _, value = line.partition("=")
    assert name == "KUBELET_EXTRA_ARGS"
    return shlex.split(value)


def test_the_built_in_template_gives_a_kubelet_what_it_needs() -> None:
    files = built_in()
    config = yaml.safe_load(files["/etc/kubernetes/bootstrap-kubelet.conf"])
    assert config["clusters"][0]["cluster"]["server"] == FACTS.endpoint
    assert config["users"][0]["user"] == {"token": FACTS.token}
    assert config["current-context"] == config["contexts"][0]["name"]
    assert arguments(files) == [
        "--hostname-override=node-1",
        "--node-labels=disk=ssd,zone=a",
        "--register-with-taints=gpu=yes:NoSchedule,spot=:NoExecute",
    ]
    assert files["/etc/kubernetes/pki/ca.crt"] == CA
    assert yaml.safe_load(files["/var/lib/kubelet/config.yaml"]) == FACTS.kubelet_config


def test_the_built_in_template_does_without_what_is_not_known() -> None:
    assert arguments(built_in(node_name="", node_selector={}, taints=())) == []


@given(
    labels=st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5),
    values=st.lists(st.text(max_size=20), min_size=3, max_size=3),
)
def test_no_value_breaks_out_of_its_place(labels: dict[str, str], values: list[str]) -> None:
    taint = dict(zip(("key", "value", "effect"), values, strict=True))
    files = built_in(node_selector=labels, taints=(taint,), cluster_id=values[0], endpoint=values[1])
    config = yaml.safe_load(files["/etc/kubernetes/bootstrap-kubelet.conf"])
    assert config["clusters"][0] == {"name": values[0], "cluster": config["clusters"][0]["cluster"]}
    assert config["clusters"][0]["cluster"]["server"] == values[1]
    assert all(each.startswith(("--hostname-override=node-1", "--node-labels=")) for each in arguments(files))


def test_labels_that_a_kubelet_may_not_set_are_left_out() -> None:
    allowed = {
        "bigfleet.lucy.sh/capacity-type": "Spot",
        "kubelet.kubernetes.io/x": "1",
        "kubernetes.io/arch": "arm64",
        "node.kubernetes.io/instance-type": "m1",
        "plain": "",
        "sub.node.kubernetes.io/x": "1",
        "topology.bigfleet.lucy.sh/rack": "r1",
        "topology.kubernetes.io/zone": "a",
    }
    forbidden = {
        "node-role.kubernetes.io/control-plane": "",
        "node-restriction.kubernetes.io/x": "1",
        "kubernetes.io/role": "x",
        "k8s.io/x": "1",
        "x.k8s.io/x": "1",
        "evilnode.kubernetes.io/x": "1",
        "with space": "x",
        "value": "with,comma",
        "long": "x" * 64,
        "-edge": "x",
    }
    assert kubelet_labels(allowed | forbidden) == ",".join(f"{key}={value}" for key, value in sorted(allowed.items()))


# The guide.

GUIDE = (Path(__file__).parents[3] / "docs" / "bootstrap-templates.md").read_text()


def test_the_guides_own_template_works() -> None:
    text = rendered(GUIDE.partition("```jinja\n")[2].partition("```")[0])
    assert "--label disk=ssd --label zone=a" in text
    assert "--taints gpu=yes:NoSchedule,spot=:NoExecute" in text


def test_the_guide_names_every_variable() -> None:
    table = GUIDE.partition("| variable |")[2].partition("\n\n")[0]
    assert [name for name in FACTS.variables() if f"`{name}`" not in table] == []
