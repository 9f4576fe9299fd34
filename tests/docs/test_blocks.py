"""Every command in the documentation is run by a test, or says what it needs that a test has not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shared.page import COMMANDS, PROMISE, blocks, steps
from tests.shared.page_lists import NEEDS, RUN_BY, pages

ROOT = Path(__file__).parents[2]
PAGES = [path.relative_to(ROOT).as_posix() for path in pages(ROOT)]

# Other names for a shell, by which a block of commands would pass unseen.
_SHELLS = frozenset({"", "sh", "shell", "console", "zsh"})
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"[-*+] |\d+\. ")


def indented_code(page: str) -> Iterator[str]:
    """The first line of every block that is code by its indentation, which has no language."""
    last, is_after_blank = "", True
    for line in _FENCED.sub("", page).splitlines():
        if not line.strip():
            is_after_blank = True
            continue
        if line.startswith("    ") and is_after_blank and not _ITEM.match(last):
            yield line.strip()
        if not line.startswith(" "):
            last = line
        is_after_blank = False


@pytest.mark.parametrize("name", PAGES)
def test_every_block_has_a_language_and_what_it_needs_is_one_of_three(name: str) -> None:
    page = (ROOT / name).read_text()
    assert list(indented_code(page)) == []
    for block in blocks(page):
        where = f"{name}:{block.line}"
        assert block.language not in _SHELLS, f"{where}: commands are {COMMANDS}, what they print is {PROMISE}"
        assert not block.needs or (block.language == COMMANDS and block.needs in NEEDS), where
    marks = sum(line.startswith("<!-- needs:") for line in page.splitlines())
    assert marks == sum(bool(block.needs) for block in blocks(page)), "a mark stands before no block"


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_need_nothing_are_run_by_a_test(name: str) -> None:
    assert bool(steps((ROOT / name).read_text())) == (name in RUN_BY)


@pytest.mark.parametrize(("name", "test"), RUN_BY.items())
def test_the_test_of_a_page_is_there_and_knows_it(name: str, test: str) -> None:
    text = (ROOT / test).read_text()
    assert "run_by(" in text or Path(name).name in text


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("Run\n\n    make test\n", ["make test"]),
        ("- item\n\n    more of it\n\ntext\n\n    make test\n", ["make test"]),
        ("text\n    that goes on\n", []),
        ("```bash\n\n    indented\n```\n", []),
    ],
)
def test_code_by_indentation_is_found(page: str, found: list[str]) -> None:
    assert list(indented_code(page)) == found


def test_a_promise_belongs_to_the_commands_right_above_and_marked_commands_are_not_run() -> None:
    page = """
```bash
a
```

```text
said
```

```text
only shown
```

<!-- needs: cloud -->
```bash
b
```

```text
not promised
```

```bash
c
```

In between.

```text
only shown
```
"""
    assert [(step.commands, step.promised) for step in steps(page)] == [("a\n", ("said",)), ("c\n", ())]
