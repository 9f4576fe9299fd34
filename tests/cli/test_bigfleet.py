"""The installed console scripts, run as a person runs them."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "capacity-requests"


def run(*arguments: str | Path, program: str = "bigfleet", encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).parent / program
    return subprocess.run(
        [str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": encoding},
    )


def refusal(result: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line that a user's mistake is answered with."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    return line


def request(path: Path, text: str) -> Path:
    path.write_text(
        "apiVersion: bigfleet.lucy.sh/v1alpha1\nkind: CapacityRequest\nmetadata: {name: a, namespace: shop}\n" + text
    )
    return path


def test_help_lists_the_programs_that_are_there_and_no_other() -> None:
    result = run("--help")
    assert result.returncode == 0
    for there in ("demo", "warm-up", "provider", "providerkit", "conformance"):
        assert f"  {there}  " in result.stdout
    for missing in ("shard", "coordinator", "operator"):
        assert f"  {missing}  " not in result.stdout


def test_every_subcommand_explains_itself_with_an_example() -> None:
    result = run("demo", "--help")
    assert result.returncode == 0
    assert "Examples: bigfleet demo" in result.stdout
    for flag in ("--cluster-id", "--listen", "--tls-cert", "--tls-key", "--tls-ca", "--log-level"):
        assert flag in result.stdout


def test_the_engine_can_be_compiled_ahead_of_time() -> None:
    result = run("warm-up")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("the decision engine is compiled, in ")


def test_the_version_is_told() -> None:
    assert run("--version").stdout == "bigfleet 0.1.0\n"


def test_the_demo_shows_what_a_shard_would_be_told() -> None:
    result = run("demo")
    assert result.returncode == 0, result.stderr
    assert "demand of cluster demo" in result.stdout
    assert "all in one" in result.stdout
    assert "acknowledged in" in result.stdout


def test_requests_of_ones_own_are_rolled_up(tmp_path: Path) -> None:
    manifest = request(tmp_path / "mine.yaml", "spec: {resources: {cpu: 1500m, memory: 3Gi}, priority: 42}\n")
    result = run("demo", manifest, "--cluster-id", "shop", "--listen", f"unix:{tmp_path}/demo.sock")
    assert result.returncode == 0, result.stderr
    assert "demand of cluster shop" in result.stdout
    assert "cpu 1500m, memory 3Gi" in result.stdout
    assert "1 requests → 1 rows" in result.stdout
    assert f"unix:{tmp_path}/demo.sock" in result.stdout


def test_an_unknown_flag_is_named(tmp_path: Path) -> None:
    line = refusal(run("demo", "--lsiten", "x"), 2)
    assert line.startswith("bigfleet demo: ")
    assert "--lsiten" in line
    assert "bigfleet demo --help" in line


def test_an_unknown_program_is_named() -> None:
    assert "'shrad'" in refusal(run("shrad"), 2)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    line = refusal(run("demo", tmp_path / "none.yaml"), 1)
    assert line == f"bigfleet: {tmp_path}/none.yaml: No such file or directory"


def test_a_name_that_cannot_be_a_file_is_named() -> None:
    assert "File name too long" in refusal(run("demo", "x" * 300), 1)


@pytest.mark.parametrize("cluster_id", ["", "[/red]", "a b", "ü"])
def test_a_cluster_id_that_no_certificate_could_carry_is_refused(cluster_id: str) -> None:
    assert "--cluster-id: bigfleet://cluster/<id> needs an id" in refusal(run("demo", "--cluster-id", cluster_id), 1)


def test_markup_and_control_characters_in_a_manifest_are_shown_as_text(tmp_path: Path) -> None:
    odd = '{key: "[/red]", operator: In, values: ["\\e[2J[bold]x"]}'
    manifest = request(tmp_path / "odd.yaml", f"spec: {{resources: {{cpu: 1}}, priority: 1, requirements: [{odd}]}}\n")
    result = run("demo", manifest)
    assert result.returncode == 0, result.stderr
    assert "red] " in result.stdout
    assert "[bold]x" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_terminal_without_unicode_shows_the_table_all_the_same() -> None:
    result = run("demo", encoding="ascii")
    assert result.returncode == 0, result.stderr
    assert "60 requests" in result.stdout


def test_requests_that_share_a_name_are_refused_and_generated_names_are_told_apart(tmp_path: Path) -> None:
    twice = request(tmp_path / "a.yaml", "spec: {resources: {cpu: 1}, priority: 1}\n")
    request(tmp_path / "b.yaml", "spec: {resources: {cpu: 4}, priority: 1}\n")
    assert "CapacityRequest shop/a is there twice" in refusal(run("demo", tmp_path), 1)
    generated = twice.read_text().replace("name: a,", "generateName: cr-,")
    twice.write_text(generated)
    (tmp_path / "b.yaml").write_text(generated.replace("cpu: 1", "cpu: 4"))
    assert "2 requests → 2 rows" in run("demo", tmp_path).stdout


def test_a_folder_without_manifests_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}: the folder holds no *.yaml file" in refusal(run("demo", tmp_path), 1)


def test_a_manifest_at_fault_is_named_with_its_field(tmp_path: Path) -> None:
    bad = request(tmp_path / "bad.yaml", "spec: {resources: {cpu: 1}, priority: high}\n")
    line = refusal(run("demo", bad), 1)
    assert "bad.yaml: document 1" in line
    assert "spec.priority" in line


def test_a_quantity_at_fault_is_named_with_its_request(tmp_path: Path) -> None:
    bad = request(tmp_path / "bad.yaml", "spec: {resources: {cpu: fast}, priority: 1}\n")
    line = refusal(run("demo", bad), 1)
    assert "CapacityRequest shop/a: spec.resources[cpu]: 'fast' is no quantity" in line


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in refusal(run("demo", binary), 1)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(run("demo", "--listen", f"127.0.0.1:{port}"), 1)
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_an_address_that_is_none_is_named() -> None:
    assert "address 'nowhere'" in refusal(run("demo", "--listen", "nowhere"), 1)


def test_part_of_the_tls_material_names_the_missing_flags() -> None:
    line = refusal(run("demo", "--tls-cert", "x.pem"), 1)
    assert "--tls-key" in line
    assert "--tls-ca" in line


def test_tls_material_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    line = refusal(run("demo", *(f"--tls-{kind}={tmp_path}/empty.pem" for kind in ("cert", "key", "ca"))), 1)
    assert "empty.pem" in line
    assert "is empty" in line


def tls_flags(pki: Any, uri: str) -> list[str]:
    files = pki.write(pki.issue(uri))
    return ["--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca]


def test_with_certificates_the_demo_speaks_mtls_as_the_cluster_they_name(pki: Any) -> None:
    result = run("demo", *tls_flags(pki, "bigfleet://cluster/shop"))
    assert result.returncode == 0, result.stderr
    assert "demand of cluster shop" in result.stdout
    assert "over mTLS as bigfleet://cluster/shop" in result.stdout


def test_a_certificate_of_another_cluster_is_refused_with_the_reason(pki: Any) -> None:
    line = refusal(run("demo", "--cluster-id", "bank", *tls_flags(pki, "bigfleet://cluster/shop")), 1)
    assert "the session was refused" in line
    assert "bigfleet://cluster/shop" in line
    assert "'bank'" in line


@pytest.mark.parametrize(
    "program", ["bigfleetctl", "fauxctl", "bigfleet-operator", "bigfleet-unschedulable-pod-controller"]
)
def test_a_program_that_is_not_built_yet_says_so(program: str) -> None:
    assert refusal(run(program=program), 1).startswith(f"{program}: is not built yet")
