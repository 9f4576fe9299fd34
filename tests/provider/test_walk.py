"""Walking a list: whatever the page size and whatever changes meanwhile, nothing is lost, and every walk ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.provider.walk import PageRequest, Walk

Rows = list[tuple[str, int]]
Answer = tuple[Rows, bytes]


@dataclass
class Shelf:
    """A correct provider: machines in the order of their last change, the cursor a place in that order.

    `cap` is the most it gives in one page though asked for more.
    """

    cap: int = 10**6
    clock: int = 0
    changed: dict[str, int] = field(default_factory=dict)

    def touch(self, machine: str) -> None:
        self.clock += 1
        self.changed[machine] = self.clock

    def list(self, request: PageRequest) -> Answer:
        after = int(request.since or b"0")
        rows = sorted((row for row in self.changed.items() if row[1] > after), key=lambda row: row[1])
        most = min(request.limit, self.cap) or len(rows)
        page = rows[:most]
        return page, b"%d" % (page[-1][1] if len(page) < len(rows) else self.clock)


def run(
    walk: Walk, answer: Callable[[PageRequest], Answer], most_calls: int = 100
) -> tuple[dict[str, int], list[PageRequest]]:
    """What a walk comes to, later rows winning, and what it asked."""
    found: dict[str, int] = {}
    asked = []
    while walk.request is not None:
        asked.append(walk.request)
        assert len(asked) <= most_calls, f"no end to {asked[-3:]}"
        rows, revision = answer(walk.request)
        found.update(rows)
        walk.take({machine for machine, _ in rows}, len(rows), revision)
    return found, asked


machines = st.sampled_from([f"m{i}" for i in range(8)])
# What changes before each answer, for as many answers as there are entries; after that nothing does.
changes = st.lists(st.lists(machines, max_size=6), max_size=40)


def changing(shelf: Shelf, script: list[list[str]]) -> Callable[[PageRequest], Answer]:
    turns: Iterator[list[str]] = iter(script)

    def answer(request: PageRequest) -> Answer:
        for machine in next(turns, []):
            shelf.touch(machine)
        return shelf.list(request)

    return answer


@settings(max_examples=600)
@given(st.lists(machines), changes, st.integers(1, 10), st.integers(1, 10))
def test_a_full_walk_finds_every_machine_as_it_is_in_the_end(
    start: list[str], script: list[list[str]], limit: int, cap: int
) -> None:
    shelf = Shelf(cap)
    for machine in start:
        shelf.touch(machine)
    found, _ = run(Walk(b"", limit), changing(shelf, script))
    assert found == shelf.changed


@settings(max_examples=600)
@given(st.lists(machines), changes, st.integers(1, 10), st.integers(1, 10))
def test_deltas_one_after_another_find_every_change(
    start: list[str], script: list[list[str]], limit: int, cap: int
) -> None:
    shelf = Shelf(cap)
    for machine in start:
        shelf.touch(machine)
    known, cursor = dict(shelf.changed), b"%d" % shelf.clock
    answer = changing(shelf, script)
    for _ in range(60):
        answered: list[bytes] = []

        def noted(request: PageRequest, answered: list[bytes] = answered) -> Answer:
            rows, revision = answer(request)
            answered.append(revision)
            return rows, revision

        known |= run(Walk(cursor, limit), noted)[0]
        cursor = answered[-1]
    assert known == shelf.changed


def still(count: int, cap: int = 10**6) -> Shelf:
    shelf = Shelf(cap)
    for i in range(count):
        shelf.touch(f"m{i}")
    return shelf


@pytest.mark.parametrize(
    ("count", "limit", "cap", "calls"),
    [(0, 10, 99, 1), (5, 10, 99, 2), (10, 10, 99, 2), (25, 10, 99, 4), (25, 10, 4, 8), (1, 1, 1, 2)],
)
def test_a_still_fleet_costs_one_call_more_than_its_pages(count: int, limit: int, cap: int, calls: int) -> None:
    shelf = still(count, cap)
    found, asked = run(Walk(b"", limit), shelf.list)
    assert (found, len(asked)) == (shelf.changed, calls)


def test_a_delta_that_is_not_cut_costs_one_call() -> None:
    shelf = still(5)
    assert run(Walk(b"3", 10), shelf.list) == ({"m3": 4, "m4": 5}, [PageRequest(b"3", 10)])


def test_a_fleet_that_never_rests_does_not_keep_the_walk_going() -> None:
    shelf = still(25)

    def busy(request: PageRequest) -> Answer:
        for i in range(3):
            shelf.touch(f"m{i}")
        return shelf.list(request)

    found, asked = run(Walk(b"", 10), busy)
    assert found == shelf.changed
    assert len(asked) <= 5


def test_a_small_page_that_tells_of_a_new_machine_is_not_the_last() -> None:
    pages: dict[bytes, Answer] = {
        b"": ([("a", 1), ("b", 1)], b"1"),
        b"1": ([("c", 1)], b"2"),
        b"2": ([("d", 1), ("e", 1)], b"3"),
        b"3": ([], b"3"),
    }
    found, _ = run(Walk(b"", 10), lambda request: pages[request.since])
    assert sorted(found) == ["a", "b", "c", "d", "e"]


ROWS: Rows = [(f"m{i}", 0) for i in range(25)]


def revisions() -> Callable[[], bytes]:
    turns = iter(range(10**6))
    return lambda: b"r%d" % next(turns)


@pytest.mark.parametrize("limit", [1, 10, 24, 25, 26, 100])
@pytest.mark.parametrize("since", [b"", b"r0"])
@pytest.mark.parametrize("revision", [lambda: b"", lambda: b"constant", revisions()], ids=["none", "constant", "new"])
@pytest.mark.parametrize("honours_limit", [False, True])
def test_a_provider_that_ignores_cursors_is_read_whole_in_a_few_calls(
    limit: int, since: bytes, revision: Callable[[], bytes], honours_limit: bool
) -> None:
    def ignoring(request: PageRequest) -> Answer:
        return ROWS[: request.limit if honours_limit and request.limit else None], revision()

    found, asked = run(Walk(since, limit), ignoring)
    assert found == dict(ROWS)
    assert len(asked) <= 3


@pytest.mark.parametrize("second", [(ROWS[10:20], b""), (ROWS[10:15], b""), (ROWS[10:20], b"10")])
def test_cursors_that_stop_midway_lead_to_one_whole_answer(second: Answer) -> None:
    def halting(request: PageRequest) -> Answer:
        if not request.limit:
            return ROWS, b"whole"
        return second if request.since else (ROWS[:10], b"10")

    assert run(Walk(b"", 10), halting) == (
        dict(ROWS),
        [PageRequest(b"", 10), PageRequest(b"10", 10), PageRequest(b"", 0)],
    )


def test_a_walk_in_circles_ends_in_one_whole_answer() -> None:
    def circling(request: PageRequest) -> Answer:
        if not request.limit:
            return ROWS, b"whole"
        turn = int(request.since or b"0")
        return ROWS[turn % 2 * 10 :][:10], b"%d" % (turn + 1)

    found, asked = run(Walk(b"", 10), circling)
    assert (found, asked[-1]) == (dict(ROWS), PageRequest(b"", 0))


def test_pages_without_end_are_given_up_for_one_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.provider.walk._MOST_PAGES", 20)
    turn = iter(range(10**6))

    def endless(request: PageRequest) -> Answer:
        n = next(turn)
        return ([(f"new{n}", n)], b"r%d" % n) if request.limit else (ROWS, b"whole")

    _, asked = run(Walk(b"", 10), endless)
    assert asked[-1] == PageRequest(b"", 0)
    assert len(asked) == 22


def test_a_walk_that_is_over_takes_nothing_more() -> None:
    walk = Walk(b"", 10)
    walk.take(set(), 0, b"1")
    with pytest.raises(ValueError, match="over"):
        walk.take(set(), 0, b"1")
