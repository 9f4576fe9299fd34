"""The shortfall ledger: what it says of needs that stay short."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.demand.need import NeedKey
from bigfleet.shard.decision.shortfalls import (
    AGE_BUCKETS,
    ESCALATED_AFTER,
    PRIORITY_CLASSES,
    TOP,
    ShortfallReport,
    Shortfalls,
    ShortNeed,
)


def short(name: str = "web", cluster: str = "c", *, priority: int = 0, cpu: int = 1, group: str = "") -> ShortNeed:
    return ShortNeed(cluster, NeedKey(name, group, (("cpu", 1),)), priority, (("cpu", cpu),))


def run(ledger: Shortfalls, *needs: ShortNeed, times: int = 1) -> ShortfallReport:
    for _ in range(times - 1):
        ledger.cycle(needs)
    return ledger.cycle(needs)


def test_a_need_ages_by_one_a_cycle_while_it_is_short_and_is_gone_when_met() -> None:
    ledger, need = Shortfalls(), short()
    ages = []
    for there in (True, True, True, False, True):
        ledger.cycle([need] if there else [])
        ages.append(ledger.age("c", need.key))
    assert ages == [1, 2, 3, 0, 1]


def test_needs_age_apart_by_cluster_and_key() -> None:
    ledger = Shortfalls()
    run(ledger, short(cluster="a"), short(cluster="b"), times=3)
    run(ledger, short(cluster="a"), short(cluster="b", group="g"))
    assert ledger.age("a", short().key) == 4
    assert ledger.age("b", short().key) == 0
    assert ledger.age("b", short(group="g").key) == 1


def test_equal_fingerprints_are_summed_over_clusters_and_sizes() -> None:
    small = ShortNeed("b", NeedKey("web", "", (("memory", 2),)), 5, (("memory", 7),))
    report = run(Shortfalls(), short(cpu=3, priority=5), short(cluster="b", cpu=4, priority=5), small)
    (entry,) = report.entries
    assert (entry.fingerprint, entry.priority, entry.needs) == ("web", 5, 3)
    assert entry.deficit == (("cpu", 7), ("memory", 7))
    assert report.count == 3


def test_an_entry_is_as_old_as_the_oldest_of_its_needs() -> None:
    ledger = Shortfalls()
    run(ledger, short(cluster="old"), times=4)
    (entry,) = run(ledger, short(cluster="new"), short(cluster="old")).entries
    assert entry.age == 5


def test_an_entry_is_escalated_after_five_cycles() -> None:
    ledger = Shortfalls()
    escalated = [run(ledger, short()).entries[0].escalated for _ in range(ESCALATED_AFTER + 1)]
    assert escalated == [False] * ESCALATED_AFTER + [True]


def test_the_top_hundred_are_those_of_highest_priority_then_age() -> None:
    ledger = Shortfalls()
    crowd = [short(f"f{i:03}", priority=i % 2) for i in range(2 * TOP + 50)]
    run(ledger, short("f101", priority=1), short("f100", priority=0))
    report = run(ledger, *crowd)
    high = sorted(f"f{i:03}" for i in range(2 * TOP + 50) if i % 2)
    names = [entry.fingerprint for entry in report.entries]
    assert names == ["f101", *(name for name in high if name != "f101")][:TOP]
    assert len(names) == 100
    assert report.count == 2 * TOP + 50, "all are counted, whoever is kept"


def test_the_three_oldest_are_named_whatever_their_priority() -> None:
    ledger = Shortfalls()
    run(ledger, short("old", priority=-5))
    run(ledger, short("old", priority=-5), short("b"), short("a"))
    report = run(
        ledger, short("old", priority=-5), short("b"), short("a"), *(short(f"n{i}", priority=9) for i in range(5))
    )
    assert report.oldest == ("old", "a", "b")


def test_nothing_short_is_a_report_of_nothing() -> None:
    report = Shortfalls().cycle([])
    assert (report.count, report.oldest, report.entries) == (0, (), ())
    assert set(report.by_priority.values()) == set(report.by_age.values()) == {0}


def test_priorities_are_counted_as_the_contract_names_their_classes() -> None:
    classes = {
        "batch": (-(2**31), 0, 100),
        "service": (101, 1_000),
        "other": (1_001, 999_999),
        "critical": (1_000_000, 2**31 - 1),
    }
    for name, priorities in classes.items():
        report = run(Shortfalls(), *(short(str(priority), priority=priority) for priority in priorities))
        assert report.by_priority == dict.fromkeys(PRIORITY_CLASSES, 0) | {name: len(priorities)}


def test_ages_are_counted_as_the_contract_names_their_buckets() -> None:
    ledger, seen = Shortfalls(), []
    for _ in range(301):
        (bucket,) = (name for name, count in ledger.cycle([short()]).by_age.items() if count)
        seen.append(bucket)
    bounds = {name: (seen.index(name) + 1, len(seen) - seen[::-1].index(name)) for name in AGE_BUCKETS}
    assert bounds == {"1-9": (1, 9), "10-59": (10, 59), "60-299": (60, 299), "300+": (300, 301)}


NEEDS = st.builds(
    short,
    st.sampled_from("uvw"),
    st.sampled_from("abc"),
    priority=st.just(0),
    cpu=st.integers(1, 9),
    group=st.sampled_from(("", "g")),
)


@given(st.lists(st.lists(NEEDS, unique_by=lambda need: (need.cluster, need.key)), max_size=12))
def test_a_report_adds_up_and_ages_are_runs_of_cycles(cycles: list[list[ShortNeed]]) -> None:
    ledger = Shortfalls()
    for n, needs in enumerate(cycles, 1):
        report = ledger.cycle(needs)
        assert report.count == len(needs) == sum(report.by_priority.values()) == sum(report.by_age.values())
        assert sum(entry.needs for entry in report.entries) == len(needs)
        lacking: Counter[str] = Counter()
        for need in needs:
            lacking[need.key.fingerprint] += dict(need.deficit)["cpu"]
            run_of = [need.key in (other.key for other in c if other.cluster == need.cluster) for c in cycles[:n]]
            age = next((i for i, there in enumerate(reversed(run_of)) if not there), n)
            assert ledger.age(need.cluster, need.key) == age
        assert {entry.fingerprint: dict(entry.deficit)["cpu"] for entry in report.entries} == lacking
        ages = {(need.cluster, need.key): ledger.age(need.cluster, need.key) for need in needs}
        assert all(
            entry.age == max(age for (_, key), age in ages.items() if key.fingerprint == entry.fingerprint)
            for entry in report.entries
        )


def test_in_an_early_cycle_nothing_ages_and_what_is_new_is_one_cycle_old() -> None:
    ledger, need = Shortfalls(), ShortNeed("c", NeedKey("f", "", (("cpu", 1000),)), 100, (("cpu", 1000),))
    assert [ledger.cycle([need], early=early).by_age["1-9"] for early in (True, False, True, True)] == [1] * 4
    assert ledger.age("c", need.key) == 2
