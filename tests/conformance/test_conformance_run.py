"""A run as a whole: its seeds, its reports, the process it starts, and targets that are none."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import grpc
import pytest

from bigfleet.conformance.catalogue import BEHAVIOURS
from bigfleet.conformance.errors import TargetError
from bigfleet.conformance.report import as_json, junit, page, write_reports
from bigfleet.conformance.run import Options, certify
from bigfleet.conformance.suite import Outcome, selects
from bigfleet.transport.address import TCPAddress
from bigfleet.wire.v1alpha1 import provider_pb2 as pb
from tests.conformance.liars.metadata import MetadataEndsAtNul
from tests.conformance.liars.random_cases import HighPlanesAreReplaced, VeryNegativeGraceCrashes
from tests.conformance.liars.refusals import OperationIdIsTheMachine
from tests.conformance.reference import Options as ProviderOptions
from tests.conformance.reference import Reference, RefusalError, serving
from tests.conformance.stand import (
    SEED,
    Watcher,
    certified,
    certified_process,
    free_port,
    launch_command,
    message,
    outcomes,
)


def selected(*selectors: str) -> set[str]:
    return {behaviour.id for behaviour in BEHAVIOURS if any(selects(text, behaviour) for text in selectors)}


def test_a_selector_is_an_area_or_one_behaviour() -> None:
    assert selected("B5", "b1001") == {"B501", "B502", "B503", "B504", "B505", "B1001"}
    assert len(selected("B1")) == 10
    assert selected("B304", "B6", "5", "B5x", "") == set()


async def replayed(make: type[Reference], behaviour: str, seed: int, folder: Path) -> str:
    """What a seed finds, less the ids that are fresh in every run."""
    async with serving(make(ProviderOptions(machines=4))) as port:
        options = Options(TCPAddress("127.0.0.1", port), seed, settle_seconds=1.0, only=(behaviour,))
        found = message(await certify(options, Watcher()), behaviour)
    return re.sub(r"token \(.*?\)|'[^']*no-such-machine[^']*'|machine 'm-\d+'", "", found)


@pytest.mark.parametrize(
    ("make", "behaviour"), [(VeryNegativeGraceCrashes, "B1205"), (HighPlanesAreReplaced, "B1202")], ids=str
)
async def test_a_seed_replays_the_case_that_failed(make: type[Reference], behaviour: str, tmp_path: Path) -> None:
    first = await replayed(make, behaviour, 7, tmp_path)
    assert re.search(r"case \d+", first)
    assert await replayed(make, behaviour, 7, tmp_path) == first
    assert await replayed(make, behaviour, 8, tmp_path) != first


async def test_a_failure_says_what_was_done_what_had_to_come_and_what_came(tmp_path: Path) -> None:
    report = await certified(OperationIdIsTheMachine, tmp_path, suite={"only": ("B214",)})
    assert re.fullmatch(
        r"Drain of machine 'm-(\d+)' with grace 1 and token \(.*\): expected an operation_id never given before; "
        r"came operation 'op-m-\1', given before to Configure of machine 'm-\1' .*",
        message(report, "B214"),
    )


async def test_reports_are_well_formed_and_tell_the_same_story(tmp_path: Path) -> None:
    suite = {"only": ("B215", "B501", "B701", "B1202")}
    report = await certified(MetadataEndsAtNul, tmp_path, suite=suite)
    write_reports(report, tmp_path)
    document = json.loads((tmp_path / "report.json").read_text())
    assert {row["id"]: row["outcome"] for row in document["behaviours"]} == outcomes(report)
    assert document["seed"] == SEED
    assert document["passed"] is False
    assert document["counts"] == {"passed": 1, "failed": 2, "skipped": 1}
    suite_element = ET.fromstring((tmp_path / "junit.xml").read_bytes())
    assert (suite_element.get("tests"), suite_element.get("failures"), suite_element.get("skipped")) == ("4", "2", "1")
    cases = {str(case.get("name")).split()[0]: case for case in suite_element.iter("testcase")}
    assert set(cases) == set(outcomes(report))
    assert cases["B501"].find("failure") is not None
    assert cases["B701"].find("skipped") is not None
    text = (tmp_path / "report.html").read_text()
    assert "DOES NOT CONFORM" in text
    assert "55 keys" in text


class Hostile(Reference):
    def find(self, machine_id: str) -> pb.Machine:
        if machine_id not in self.fleet.machines:
            raise RefusalError(grpc.StatusCode.INTERNAL, "<script>alert('\x1b[2J')</script>")
        return super().find(machine_id)


async def test_foreign_text_cannot_break_a_report(tmp_path: Path) -> None:
    report = await certified(Hostile, tmp_path, suite={"only": ("B215",)})
    assert outcomes(report) == {"B215": Outcome.FAILED}
    (case,) = ET.fromstring(junit(report)).iter("testcase")
    (failure,) = case.iter("failure")
    assert "<script>" in str(failure.get("message"))
    text = page(report)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "<script>" in json.loads(as_json(report))["behaviours"][0]["message"]


async def test_the_page_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    text = page(await certified(Reference, tmp_path, suite={"only": ("B2",)}))
    assert re.search(r"(src|href|url\(|@import|https?:)", text) is None


async def test_a_problem_of_the_run_is_in_every_report(tmp_path: Path) -> None:
    report = await certified(Reference, tmp_path, machines=0, suite={"only": ("B101",)})
    sentence = report.problems[0]
    assert [failure.get("message") for failure in ET.fromstring(junit(report)).iter("failure")] == [sentence]
    assert json.loads(as_json(report))["problems"] == [sentence]
    assert sentence in page(report)


async def refused_launch(command: str, port: int) -> str:
    options = Options(TCPAddress("127.0.0.1", port), SEED, settle_seconds=5.0, launch=command)
    with pytest.raises(TargetError) as refused:
        await certify(options, Watcher())
    return str(refused.value)


async def test_a_command_that_cannot_be_started_or_ends_at_once_is_named() -> None:
    port = free_port()
    assert await refused_launch("no-such-provider", port) == "--launch no-such-provider: No such file or directory"
    found = await refused_launch(f"{sys.executable} -c 'raise SystemExit(3)'", port)
    assert found == f"--launch {sys.executable}: ended with code 3 before it listened at 127.0.0.1:{port}"


async def test_a_list_of_hosts_that_cannot_be_had_ends_the_run_at_once() -> None:
    async with serving(Reference(ProviderOptions(machines=1))) as port:
        options = Options(TCPAddress("127.0.0.1", port), SEED, settle_seconds=5.0, hosts_command="ls /no/such/folder")
        with pytest.raises(TargetError, match=r"--hosts-cmd 'ls /no/such/folder': ended with code 2: .*No such file"):
            await certify(options, Watcher())


async def test_a_provider_that_ends_in_the_middle_is_named_with_its_last_words(tmp_path: Path) -> None:
    report = await certified_process(tmp_path, "--liar", "EndsAtTheFirstConfigure", only=("B1", "B2"))
    assert report.problems == ("the provider ended by itself with code 3 during the run",)
    assert report.log == ("out of luck",)
    (cause,) = report.causes
    assert cause.text == "the provider does not answer: UNAVAILABLE"
    assert len(cause.results) > 5


async def test_a_provider_that_runs_already_is_not_launched_over(tmp_path: Path) -> None:
    async with serving(Reference(ProviderOptions(machines=1))) as port:
        found = await refused_launch(launch_command(port, tmp_path / "state"), port)
    assert found.startswith(f"something answers at 127.0.0.1:{port} already")
