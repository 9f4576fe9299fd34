"""Annotations, then PriorityClass defaults, then zero; and a file of defaults that is read again."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from bigfleet.kube.objects.kinds import Pod
from bigfleet.podcontroller.defaults_file import MAX_BYTES, DefaultsFile
from bigfleet.podcontroller.pod.complaints import MALFORMED
from bigfleet.podcontroller.pod.penalties import (
    DOLLARS,
    MAX_TEXT,
    Penalties,
    PenaltyFileError,
    amount,
    annotated,
    read_defaults,
)

CRD = Path(__file__).parents[3] / "api" / "crd" / "bigfleet.lucy.sh_capacityrequests.yaml"


def pod(**annotations: str) -> Pod:
    named = {f"bigfleet.lucy.sh/{name}-penalty": value for name, value in annotations.items()}
    return msgspec.convert({"metadata": {"name": "a", "annotations": named}}, Pod)


def test_an_annotation_takes_exactly_what_the_field_takes() -> None:
    spec = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for field in ("interruptionPenalty", "reclamationPenalty"):
        schema = spec["properties"][field]
        assert schema["pattern"] == f"^{DOLLARS.pattern}$"
        assert schema["maxLength"] == MAX_TEXT


def test_annotations_are_taken_as_they_are_written() -> None:
    said, complaints = annotated(pod(interruption="2.50", reclamation="10k"))
    assert said == Penalties(interruption_penalty="2.50", reclamation_penalty="10k")
    assert complaints == ()


@pytest.mark.parametrize("bad", ["", "lots", "-1", "1 000", "$5", "1e99", "5" * 33, "5\n", "∞"])
def test_an_annotation_that_cannot_be_read_counts_for_nothing_and_is_reported(bad: str) -> None:
    said, (complaint,) = annotated(pod(interruption=bad, reclamation="3"))
    assert said == Penalties(reclamation_penalty="3")
    assert complaint.reason == MALFORMED
    assert "bigfleet.lucy.sh/interruption-penalty" in complaint.note
    assert complaint.note.isprintable()


def test_a_huge_annotation_is_not_repeated_whole() -> None:
    _, (complaint,) = annotated(pod(interruption="x" * 100_000))
    assert len(complaint.note) < 300


def test_the_pod_wins_over_its_class_field_by_field() -> None:
    class_default = Penalties(interruption_penalty="100", reclamation_penalty="50")
    assert Penalties(interruption_penalty="0").over(class_default) == Penalties(
        interruption_penalty="0", reclamation_penalty="50"
    )


@pytest.mark.parametrize(
    ("value", "expected"), [(None, 0), ("0", 0), ("0.0", 0), ("+0Ki", 0), (0, 0), ("5", "5"), (7, 7)]
)
def test_zero_however_written_is_left_out(value: str | int | None, expected: str | int) -> None:
    assert amount(value) == expected


def test_defaults_are_read() -> None:
    text = 'critical: {interruptionPenalty: "512", reclamationPenalty: 64}\nbatch: {reclamationPenalty: 500m}\n'
    assert read_defaults(text, "f") == {
        "critical": Penalties(interruption_penalty="512", reclamation_penalty=64),
        "batch": Penalties(reclamation_penalty="500m"),
    }
    assert read_defaults("", "f") == {}


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("critical: {interruptionPenalty: -5}", "critical: interruption_penalty: '-5' is no amount"),
        ("critical: {interruptionPenalty: lots}", "'lots' is no amount"),
        ("critical: {penalty: 5}", "unknown field `penalty`"),
        ("critical: 5", "write PriorityClass names"),
        ("- critical", "write PriorityClass names"),
        ("a: {}\n---\nb: {}", "2 documents"),
        ("a: {}\na: {}", "stands twice"),
        ("a: [", "line"),
    ],
)
def test_bad_defaults_are_refused_with_the_place(text: str, about: str) -> None:
    with pytest.raises(PenaltyFileError, match=re.escape(about)) as caught:
        read_defaults(text, "defaults.yaml")
    assert str(caught.value).startswith("penalty defaults defaults.yaml: ")


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", b" " * (MAX_BYTES + 1), None])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "defaults.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PenaltyFileError, match=re.escape(str(path))):
        DefaultsFile(path)


def test_a_changed_file_is_taken_and_a_bad_one_is_said_once_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "defaults.yaml"
    path.write_text("a: {reclamationPenalty: 1}")
    file = DefaultsFile(path)
    assert not file.refresh()
    first = file.defaults
    with capture_logs() as logs:
        path.write_text("a: [")
        assert [file.refresh(), file.refresh()] == [False, False]
        path.unlink()
        assert [file.refresh(), file.refresh()] == [False, False]
    assert file.defaults is first
    assert [log["event"] for log in logs] == ["penalty_defaults_refused", "penalty_defaults_refused"]
    path.write_text("a: {reclamationPenalty: 2}")
    assert [file.refresh(), file.refresh()] == [True, False]
    assert file.defaults == {"a": Penalties(reclamation_penalty=2)}


def test_a_file_made_good_again_without_a_change_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "defaults.yaml"
    path.write_text("a: {}")
    file = DefaultsFile(path)
    path.write_text("a: [")
    file.refresh()
    path.write_text("a: {}")
    with capture_logs() as logs:
        assert not file.refresh()
        path.write_text("a: [")
        file.refresh()
    assert [log["event"] for log in logs] == ["penalty_defaults_refused"]


def test_without_a_file_there_are_no_defaults() -> None:
    file = DefaultsFile(None)
    assert file.defaults == {}
    assert not file.refresh()
