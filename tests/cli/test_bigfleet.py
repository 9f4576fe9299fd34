"""The console scripts: that they are installed, and what their commands say."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared.command_line import ROOT, Ran, bigfleet

EXAMPLES = ROOT / "examples" / "capacity-requests"


def installed(*arguments: str, program: str = "bigfleet", encoding: str = "utf-8") -> Ran:
    """The script that a person calls, as a process."""
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": encoding},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def request(path: Path, text: str) -> Path:
    path.write_text(
        "apiVersion: bigfleet.lucy.sh/v1alpha1\nkind: CapacityRequest\nmetadata: {name: a, namespace: shop}\n" + text
    )
    return path


def test_help_lists_the_programs_that_are_there_and_no_other() -> None:
    result = installed("--help")
    assert result.returncode == 0
    there = ("demo", "all-in-one", "shard", "operator", "pod-controller", "rollup", "warm-up", "provider", "dev")
    for program in (*there, "providerkit", "conformance"):
        assert f"  {program}  " in result.stdout
    assert "  coordinator  " not in result.stdout


@pytest.mark.parametrize(("program", "flags"), [("demo", ["--fast"]), ("rollup", ["--cluster-id"])])
def test_a_subcommand_explains_itself_with_an_example(program: str, flags: list[str]) -> None:
    result = bigfleet(program, "--help")
    assert result.returncode == 0
    assert f"Examples:\n    bigfleet {program}" in result.stdout
    for flag in flags:
        assert flag in result.stdout


def test_the_engine_can_be_compiled_ahead_of_time() -> None:
    result = installed("warm-up")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("the decision engine is compiled, in ")


def test_the_version_is_told() -> None:
    assert bigfleet("--version").stdout == "bigfleet 0.1.0\n"


def test_a_rollup_shows_what_a_shard_would_be_told() -> None:
    result = bigfleet("rollup")
    assert result.returncode == 0, result.stderr
    assert "demand of cluster example" in result.stdout
    assert "all in one" in result.stdout
    assert "60 requests → 12 rows" in result.stdout


def test_requests_of_ones_own_are_rolled_up(tmp_path: Path) -> None:
    manifest = request(tmp_path / "mine.yaml", "spec: {resources: {cpu: 1500m, memory: 3Gi}, priority: 42}\n")
    result = bigfleet("rollup", manifest, "--cluster-id", "shop")
    assert result.returncode == 0, result.stderr
    assert "demand of cluster shop" in result.stdout
    assert "cpu 1500m, memory 3Gi" in result.stdout
    assert re.search(r"1 requests → 1 rows, \d+ bytes on the wire", result.stdout)


def test_an_unknown_flag_is_named() -> None:
    line = bigfleet("rollup", "--culster-id", "x").refusal(2)
    assert line.startswith("bigfleet rollup: ")
    assert "--culster-id" in line
    assert "bigfleet rollup --help" in line


def test_an_unknown_program_is_named() -> None:
    assert "'shrad'" in bigfleet("shrad").refusal(2)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    line = bigfleet("rollup", tmp_path / "none.yaml").refusal(1)
    assert line == f"bigfleet: {tmp_path}/none.yaml: No such file or directory"


def test_a_name_that_cannot_be_a_file_is_named() -> None:
    assert "File name too long" in bigfleet("rollup", "x" * 300).refusal(1)


@pytest.mark.parametrize("cluster_id", ["", "[/red]", "a b", "ü"])
def test_a_cluster_id_that_no_certificate_could_carry_is_refused(cluster_id: str) -> None:
    assert "--cluster-id: bigfleet://cluster/<id> needs an id" in bigfleet(
        "rollup", "--cluster-id", cluster_id
    ).refusal(1)


def test_markup_and_control_characters_in_a_manifest_are_shown_as_text(tmp_path: Path) -> None:
    odd = '{key: "[/red]", operator: In, values: ["\\e[2J[bold]x"]}'
    manifest = request(tmp_path / "odd.yaml", f"spec: {{resources: {{cpu: 1}}, priority: 1, requirements: [{odd}]}}\n")
    result = bigfleet("rollup", manifest)
    assert result.returncode == 0, result.stderr
    assert "red] " in result.stdout
    assert "[bold]x" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_terminal_without_unicode_shows_the_table_all_the_same() -> None:
    result = installed("rollup", encoding="ascii")
    assert result.returncode == 0, result.stderr
    assert "60 requests" in result.stdout


def test_requests_that_share_a_name_are_refused_and_generated_names_are_told_apart(tmp_path: Path) -> None:
    twice = request(tmp_path / "a.yaml", "spec: {resources: {cpu: 1}, priority: 1}\n")
    request(tmp_path / "b.yaml", "spec: {resources: {cpu: 4}, priority: 1}\n")
    line = bigfleet("rollup", tmp_path).refusal(1)
    assert f"{tmp_path}/b.yaml: document 1: metadata.name: CapacityRequest shop/a is there twice" in line
    generated = twice.read_text().replace("name: a,", "generateName: cr-,")
    twice.write_text(generated)
    (tmp_path / "b.yaml").write_text(generated.replace("cpu: 1", "cpu: 4"))
    assert "2 requests → 2 rows" in bigfleet("rollup", tmp_path).stdout


def test_a_folder_without_manifests_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}: the folder holds no *.yaml file" in bigfleet("rollup", tmp_path).refusal(1)


def test_a_manifest_at_fault_is_named_with_its_field(tmp_path: Path) -> None:
    bad = request(tmp_path / "bad.yaml", "spec: {resources: {cpu: 1}, priority: high}\n")
    line = bigfleet("rollup", bad).refusal(1)
    assert "bad.yaml: document 1" in line
    assert "spec.priority" in line


def test_a_quantity_at_fault_is_named_with_its_document_and_field(tmp_path: Path) -> None:
    bad = request(tmp_path / "bad.yaml", "spec: {resources: {cpu: fast}, priority: 1}\n")
    line = bigfleet("rollup", bad).refusal(1)
    assert f"{bad}: document 1: spec.resources[cpu]: 'fast' is no quantity" in line


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in bigfleet("rollup", binary).refusal(1)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = bigfleet("provider", "sim", "--listen", f"127.0.0.1:{port}", "--log-level", "error")
    line = result.refusal(1)
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_an_address_that_is_none_is_named() -> None:
    assert "address 'nowhere'" in bigfleet("provider", "sim", "--listen", "nowhere").refusal(1)


def test_part_of_the_tls_material_names_the_missing_flags() -> None:
    line = bigfleet("provider", "sim", "--tls-cert", "x.pem").refusal(1)
    assert "--tls-key" in line
    assert "--tls-ca" in line


def test_tls_material_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    files = (f"--tls-{kind}={tmp_path}/empty.pem" for kind in ("cert", "key", "ca"))
    line = bigfleet("provider", "sim", *files).refusal(1)
    assert "empty.pem" in line
    assert "is empty" in line


def test_a_program_that_is_not_built_yet_says_so() -> None:
    assert installed(program="fauxctl").refusal(1).startswith("fauxctl: is not built yet")


@pytest.mark.parametrize("program", ["bigfleet-operator", "bigfleet-unschedulable-pod-controller"])
def test_programs_of_their_own_explain_themselves(program: str) -> None:
    result = installed("--help", program=program)
    assert result.returncode == 0
    assert "--kubeconfig" in result.stdout
    assert f"Examples: {program}" in " ".join(result.stdout.split())


class TestOperator:
    GOOD = ("operator", "--cluster-id=a", "--shard-address=127.0.0.1:7780")

    @pytest.mark.parametrize(
        ("flags", "says"),
        [
            (("operator", "--cluster-id=a b", "--shard-address=127.0.0.1:1"), "--cluster-id"),
            (("operator", "--cluster-id=a", "--shard-address=nowhere"), "nowhere"),
            ((*GOOD, "--rollup-interval=500ms"), "1s at least"),
            ((*GOOD, "--kubeconfig=/no/such/file"), "/no/such/file"),
            ((*GOOD, "--kubelet-version=2"), "such as v1.34.4"),
            ((*GOOD, "--tls-cert=x"), "--tls-key"),
        ],
    )
    def test_a_mistake_gets_one_line(self, flags: tuple[str, ...], says: str) -> None:
        assert says in bigfleet(*flags).refusal(1)

    def test_a_template_that_cannot_be_used_ends_it_at_the_start(self, tmp_path: Path) -> None:
        template = tmp_path / "template"
        template.write_text("{{ NoSuchThing }}")
        line = bigfleet(*self.GOOD, f"--bootstrap-template-file={template}").refusal(1)
        assert "NoSuchThing" in line
