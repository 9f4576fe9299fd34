"""Draws the life cycle of a commitment into docs/internals/commitment-life-cycle.md, from `shard/execution/steps.py`.

`make generate` runs it. tests/shard/execution/test_steps.py compares what it would write with what is there.
"""

from pathlib import Path

from bigfleet.shard.execution.steps import (
    LEADS_TO,
    MAY_END,
    MOVES,
    REVOCABLE,
    RULES,
    STEP_OF,
    Awaited,
    Goal,
    Move,
    Step,
    StepRule,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "internals" / "commitment-life-cycle.md"

_BEGIN, _END = "<!-- drawing: hack/commitment_drawing.py -->\n", "<!-- end of drawing -->\n"


def page() -> str:
    """The page as it stands, with the drawing and the tables made anew."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks the marks between which its drawing goes")
    return before + begin + "\n".join([*_drawing(), "", *_steps(), "", *_moves(), ""]) + end + after


def _drawing() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", "  state next <<choice>>", f"  [*] --> {Step.DECIDED.value}"]
    for step, rule in RULES.items():
        lines += [f"  {step.value} --> {line}" for line in _edges(step, rule)]
    for move in Move:
        goals = sorted({goal.name for goal in Goal if move in MOVES[goal].values()})
        words = f"{move.value} ({', '.join(goals)})"
        lines += [f"  next --> {step.value} : {words}" for step in LEADS_TO[move]]
        if move in MAY_END:
            lines.append(f"  next --> [*] : {words}")
    return [*lines, "```"]


def _edges(step: Step, rule: StepRule) -> list[str]:
    if rule.acknowledged is not None:
        return [
            f"{rule.acknowledged.value} : ack",
            f"{Step.DOUBT.value} : no answer",
            "[*] : refused",
        ]
    edges = [f"next : {rule.awaits.value}"]
    if rule.answered is not None:
        edges = [f"{STEP_OF[rule.answered].value} : {rule.awaits.value}"]
    if rule.falls_back_to is not None:
        edges.append(f"[*] : {rule.falls_back_to.label} again")
    if step in REVOCABLE:
        edges.append("[*] : revoked")
    if rule.awaits in (Awaited.STATE, Awaited.GET):
        edges.append("[*] : time is over")
    return edges


def _steps() -> list[str]:
    lines = [
        "| step | awaits | revocable | fell back if the machine is | restored as |",
        "| --- | --- | --- | --- | --- |",
    ]
    for step, rule in RULES.items():
        back = "" if rule.falls_back_to is None else rule.falls_back_to.label
        revocable = "yes" if step in REVOCABLE else "no"
        lines.append(f"| {step.value} | {rule.awaits.value} | {revocable} | {back} | {rule.restored_as.value} |")
    return lines


def _moves() -> list[str]:
    lines = [
        "| the machine is | " + " | ".join(f"goal {goal.name}: {goal.value}" for goal in Goal) + " |",
        "| --- | " + " | ".join("---" for _ in Goal) + " |",
    ]
    states = MOVES[Goal.SERVE]
    return lines + [f"| {s.label} | " + " | ".join(MOVES[goal][s].value for goal in Goal) + " |" for s in states]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
