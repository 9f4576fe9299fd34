"""The report of a run as files: JUnit for build servers, JSON for programs, one page of HTML for people."""

import html
import json
from pathlib import Path
from xml.etree import ElementTree as ET

from bigfleet.conformance.catalogue import TITLES
from bigfleet.conformance.run import Report
from bigfleet.conformance.suite import Outcome, Result
from bigfleet.conformance.terminal import described, plain, shortened

_MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.SKIPPED: "○"}

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:1.6rem 0 .3rem}
.verdict{display:inline-block;padding:.2rem .8rem;border-radius:.3rem;color:#fff;font-weight:600}
.verdict.passed{background:#1a7f37}.verdict.failed{background:#cf222e}
dl{display:grid;grid-template-columns:8rem 1fr;gap:.1rem 1rem}dt{color:#57606a}dd{margin:0}
table{border-collapse:collapse;width:100%}td{padding:.25rem .5rem;border-top:1px solid #d8dee4;vertical-align:top}
td:nth-child(1){width:1rem}td:nth-child(2){width:4rem;font-weight:600}td:last-child{text-align:right;color:#57606a}
tr.passed td:first-child{color:#1a7f37}tr.failed td:first-child{color:#cf222e}tr.skipped{color:#57606a}
.why{overflow-wrap:anywhere}tr.failed .why{color:#cf222e}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td{border-color:#30363d}
dt,tr.skipped,td:last-child{color:#8d96a0}tr.failed .why{color:#ff7b72}}
"""


def write_reports(report: Report, folder: Path) -> None:
    """Write junit.xml, report.json and report.html into the folder."""
    (folder / "junit.xml").write_bytes(junit(report))
    (folder / "report.json").write_text(as_json(report), "utf-8")
    (folder / "report.html").write_text(page(report), "utf-8")


def junit(report: Report) -> bytes:
    """One test case a behaviour, and one for each problem of the run as a whole."""
    cases = len(report.results) + len(report.problems)
    suite = ET.Element(
        "testsuite",
        name="bigfleet conformance",
        tests=str(cases),
        failures=str(report.count(Outcome.FAILED) + len(report.problems)),
        skipped=str(report.count(Outcome.SKIPPED)),
        errors="0",
        time=f"{report.seconds:.3f}",
        timestamp=report.began.isoformat(timespec="seconds"),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("target", report.target),
        ("seed", str(report.seed)),
        *described(report.facts, report.profiles),
    ):
        ET.SubElement(properties, "property", name=name, value=plain(value))
    for result in report.results:
        behaviour = result.behaviour
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"conformance.B{behaviour.area}xx {TITLES[behaviour.area]}",
            name=f"{behaviour.id} {behaviour.sentence}",
            time=f"{result.seconds:.3f}",
        )
        if result.outcome is Outcome.FAILED:
            ET.SubElement(case, "failure", message=plain(result.message))
        elif result.outcome is Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=plain(result.message))
        if result.notes:
            ET.SubElement(case, "system-out").text = plain("; ".join(result.notes))
    for problem in report.problems:
        case = ET.SubElement(suite, "testcase", classname="conformance.run", name="the run as a whole", time="0")
        ET.SubElement(case, "failure", message=plain(problem))
    document: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def as_json(report: Report) -> str:
    """The whole report as a JSON document."""
    facts = report.facts
    document = {
        "target": report.target,
        "seed": report.seed,
        "began": report.began.isoformat(),
        "seconds": round(report.seconds, 3),
        "passed": report.passed,
        "verdict": report.verdict,
        "only": list(report.only),
        "not_checked": list(report.unchecked),
        "profiles": list(report.profiles),
        "probes": {
            "machines": facts.machines,
            "ordinary": facts.ordinary,
            "delete": facts.deletable,
            "cursors": facts.cursors,
            "cursor_need": facts.cursor_need,
            "spot": facts.spot,
            "faults": list(facts.faults),
            "tls": facts.tls,
            "launched": facts.launched,
        },
        "counts": {outcome.value: report.count(outcome) for outcome in Outcome},
        "problems": list(report.problems),
        "provider_log": list(report.log),
        "causes": [{"cause": cause.text, "behaviours": list(cause.ids)} for cause in report.causes],
        "left_behind": list(report.left_behind),
        "behaviours": [
            {
                "id": result.behaviour.id,
                "sentence": result.behaviour.sentence,
                "profile": result.behaviour.profile.value,
                "outcome": result.outcome.value,
                "not_checked": result.unchecked,
                "message": result.message,
                "seconds": round(result.seconds, 3),
                "notes": list(result.notes),
            }
            for result in report.results
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def page(report: Report) -> str:
    """One page that needs nothing else: no script, no font, no link."""
    counts = ", ".join(f"{report.count(outcome)} {outcome}" for outcome in Outcome)
    facts = [
        ("target", report.target),
        ("began", report.began.isoformat(timespec="seconds")),
        ("seed", str(report.seed)),
        *described(report.facts, report.profiles),
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f"<title>Conformance of {_text(report.target)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Provider conformance of {_text(report.target)}</h1>",
        f'<p><span class="verdict {"passed" if report.passed else "failed"}">{_text(report.verdict)}</span>',
        f"{counts} in {report.seconds:.1f} s</p><dl>",
        *(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts),
        "</dl>",
        *(f'<p class="verdict failed">{_text(problem)}</p>' for problem in report.problems),
        *(f"<pre>{_text(line)}</pre>" for line in report.log),
        *(f"<p>{_text(sentence)}</p>" for sentence in shortened(report.left_behind)),
    ]
    repeats: dict[str, str] = {}
    for cause in report.causes:
        if len(cause.results) > 1:
            first, *others = cause.ids
            repeats.update(dict.fromkeys(others, first))
            parts.append(f"<p>One cause, {len(cause.results)} failures: <b>{_text(cause.text)}</b><br>")
            parts.append(f"{', '.join(cause.ids)}</p>")
    area = 0
    for result in report.results:
        if result.behaviour.area != area:
            parts.append("</table>" if area else "")
            area = result.behaviour.area
            parts.append(f"<h2>B{area}xx {_text(TITLES[area])}</h2><table>")
        parts.append(_row(result, repeats.get(result.behaviour.id, "")))
    return "\n".join([*parts, "</table>" if area else "", "</body></html>", ""])


def _row(result: Result, repeated: str) -> str:
    """The table row of a result. `repeated` is the behaviour whose failure has the same cause and was shown before."""
    message = f"the same cause as {repeated}" if repeated else result.message
    details = [text for text in (message, *result.notes) if text]
    why = "".join(f'<div class="why">{_text(text)}</div>' for text in details)
    cells = (_MARKS[result.outcome], result.behaviour.id, f"{_text(result.behaviour.sentence)}{why}")
    row = "".join(f"<td>{cell}</td>" for cell in (*cells, f"{result.seconds:.2f} s"))
    return f'<tr class="{result.outcome}">{row}</tr>'


def _text(text: str) -> str:
    return html.escape(plain(text))
