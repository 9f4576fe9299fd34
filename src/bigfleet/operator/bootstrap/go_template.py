"""Templates spelled as Go's text/template spells them, turned into Jinja2 line by line (docs/adr/0022).

The list of what is taken is closed: variables (`.ClusterID`), if, else if, else, range, end, comments, pipelines into
filters, and the functions eq, ne, not, index and len. A block that is Jinja2 already stays as it is, so both spellings
may stand in one file.
"""

import re
from collections.abc import Iterator

_COMMENT = re.compile(r"\{#.*?#\}|\{%-?\s*raw\s*-?%\}.*?\{%-?\s*endraw\s*-?%\}", re.DOTALL)
_STRING = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`'
_BLOCK = re.compile(rf"\{{\{{(-?)((?:{_STRING}|(?!\}}\}}).)*?)(-?)\}}\}}", re.DOTALL)
_STATEMENT = re.compile(rf"\{{%(?:{_STRING}|(?!%\}}).)*?%\}}", re.DOTALL)
_DOT = re.compile(rf"""({_STRING})|(?<![\w)\]}}."'])\.([A-Za-z_]\w*)""")
_TOKEN = re.compile(
    rf"\s*(?:(?P<text>{_STRING})|(?P<number>-?\d+)|(?P<field>\$?\w*(?:\.[A-Za-z_]\w*)+|\$\w*|\.(?!\w))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<mark>[()|]))"
)
_RANGE = re.compile(r"range\s+(?:\$(\w+)\s*(?:,\s*\$(\w+)\s*)?:=\s*)?((?:(?!:=).)+)", re.DOTALL)
_UNTAKEN = {
    "with": "write {{ if .X }} and name .X in full inside",
    "define": "put the text where it is used",
    "template": "put the text where it is used",
    "block": "put the text where it is used",
    "break": "choose with {{ if }} inside the loop",
    "continue": "choose with {{ if }} inside the loop",
    "printf": "write the text around {{ .X }}",
}
_KEYWORDS = frozenset({"if", "else", "end", "range", *_UNTAKEN})
_CONSTANTS = frozenset({"true", "false", "nil"})

PAIRS = "go_pairs"
"""The filter for a range with two variables: (key, value) of a mapping in order of keys, (position, item) of a list."""
VALUES = "go_values"
"""The filter for a range with one variable or none: the values of a mapping in order of keys, the items of a list."""


class GoTemplateError(ValueError):
    """A block of Go's that is not taken. The error names its line and says what to write instead."""

    def __init__(self, line: int, problem: str) -> None:
        self.line, self.problem = line, problem
        super().__init__(f"line {line}: {problem}")


class _NotGoError(ValueError):
    """A block that does not read as Go. It is left to Jinja2."""


def to_jinja(source: str) -> str:
    """The template as Jinja2 takes it, with every block on its own line still. Raises GoTemplateError."""
    return "".join(_Translation(source).parts())


class _Translation:
    """One template on its way into Jinja2."""

    def __init__(self, source: str) -> None:
        self._source = source
        #: The blocks that wait for their `end`, innermost last: `if` or `range`, and the line.
        self._open: list[tuple[str, int]] = []
        #: What the dot stands for in each range that is open, innermost last.
        self._dots: list[str] = []

    def parts(self) -> Iterator[str]:
        position = 0
        for found in _first_of(self._source, _COMMENT, _BLOCK, _STATEMENT):
            yield self._source[position : found.start()]
            yield self._part(found)
            position = found.end()
        yield self._source[position:]
        if self._open:
            word, line = self._open[-1]
            raise GoTemplateError(line, f"{{{{ {word} }}}} has no {{{{ end }}}}")

    def _part(self, found: re.Match[str]) -> str:
        if found.re is _COMMENT:
            return found.group()
        if found.re is _STATEMENT:
            return _without_dots(found.group())
        line = self._source.count("\n", 0, found.start()) + 1
        left, inner, right = found.groups()
        made = self._block(inner.strip(), line)
        if made is None:
            return _without_dots(found.group())
        opening, content, closing = made
        missing = "\n" * (found.group().count("\n") - content.count("\n"))
        return f"{opening}{left} {content}{missing} {right}{closing}"

    def _block(self, inner: str, line: int) -> tuple[str, str, str] | None:
        if inner.startswith("/*"):
            return "{#", "", "#}"
        word = "".join(re.findall(r"\A\w+", inner))
        if word in _KEYWORDS:
            return "{%", self._keyword(word, inner, line), "%}"
        if ":=" in inner or re.match(r"\$\w+\s*=", inner):
            raise GoTemplateError(line, f"{{{{ {inner} }}}} sets a variable: name its value where it is used")
        try:
            return "{{", self._pipeline(inner, line), "}}"
        except _NotGoError:
            return None

    def _keyword(self, word: str, inner: str, line: int) -> str:
        if word in _UNTAKEN:
            raise GoTemplateError(line, f"{{{{ {word} }}}} is not taken: {_UNTAKEN[word]}")
        rest = inner[len(word) :].strip()
        if word == "if":
            self._open.append((word, line))
            return f"if {self._condition(rest, line)}"
        if word == "range":
            self._open.append((word, line))
            return self._range(inner, line)
        if not self._open:
            raise GoTemplateError(line, f"{{{{ {word} }}}} without {{{{ if }}}} or {{{{ range }}}} before it")
        if word == "else":
            return self._else(rest, line)
        opened, _ = self._open.pop()
        if opened == "range":
            self._dots.pop()
            return "endfor"
        return "endif"

    def _else(self, rest: str, line: int) -> str:
        if not rest:
            return "else"
        if not re.match(r"if\b", rest) or self._open[-1][0] != "if":
            raise GoTemplateError(
                line, f"{{{{ else {rest} }}}} is not taken: write {{{{ else }}}} or {{{{ else if .X }}}}"
            )
        return f"elif {self._condition(rest[2:].strip(), line)}"

    def _range(self, inner: str, line: int) -> str:
        found = _RANGE.fullmatch(inner)
        if found is None:
            raise GoTemplateError(line, f"{{{{ {inner} }}}}: write {{{{ range $key, $value := .NodeSelector }}}}")
        first, second, over = found.groups()
        values = self._condition(over, line)
        dot = f"go_dot{len(self._dots)}"
        self._dots.append(dot if first is None else f"go_{second or first}")
        if second is not None:
            return f"for go_{first}, go_{second} in {values} | {PAIRS}"
        return f"for {self._dots[-1]} in {values} | {VALUES}"

    def _condition(self, text: str, line: int) -> str:
        try:
            return self._pipeline(text, line)
        except _NotGoError:
            raise GoTemplateError(
                line, f'{text!r} is no value: write .X, eq .X "y", not .X or index .NodeSelector "key"'
            ) from None

    # Pipelines.

    def _pipeline(self, text: str, line: int) -> str:
        tokens = _tokens(text)
        made = self._commands(tokens, line)
        if tokens:
            raise _NotGoError
        return made

    def _commands(self, tokens: list[tuple[str, str]], line: int) -> str:
        made = self._command(tokens, line, "")
        while tokens and tokens[0][1] == "|":
            tokens.pop(0)
            made = self._command(tokens, line, made)
        return made

    def _command(self, tokens: list[tuple[str, str]], line: int, piped: str) -> str:
        word = ""
        if tokens and tokens[0][0] == "word" and tokens[0][1] not in _CONSTANTS:
            word = tokens.pop(0)[1]
        operands = []
        while tokens and tokens[0][1] not in ("|", ")"):
            operands.append(self._operand(tokens, line))
        if word and (piped or operands):
            return self._call(word, operands, piped, line)
        if word or piped or len(operands) != 1:
            # A word alone is a name of Jinja2; operands side by side are neither Go nor Jinja2.
            raise _NotGoError
        return operands[0]

    def _operand(self, tokens: list[tuple[str, str]], line: int) -> str:
        kind, text = tokens.pop(0)
        if text == "(":
            made = self._commands(tokens, line)
            if not tokens or tokens.pop(0)[1] != ")":
                raise _NotGoError
            return f"({made})"
        if kind == "field":
            return self._field(text, line)
        if kind == "text" and text[0] == "`":
            escaped = text[1:-1].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        if text in _CONSTANTS:
            return "none" if text == "nil" else text
        if kind in ("text", "number"):
            return text
        raise _NotGoError

    def _field(self, text: str, line: int) -> str:
        head, _, rest = text.partition(".")
        if head == "$":
            return rest or self._refuse_dot(line)
        if head:
            return f"go_{head[1:]}" + (f".{rest}" if rest else "") if head[0] == "$" else text
        if self._dots:
            return self._dots[-1] + (f".{rest}" if rest else "")
        return rest or self._refuse_dot(line)

    def _refuse_dot(self, line: int) -> str:
        raise GoTemplateError(line, "the dot alone is everything at once: name what is wanted, as in {{ .ClusterID }}")

    def _call(self, word: str, operands: list[str], piped: str, line: int) -> str:
        given = [*operands, piped] if piped else operands
        match word, len(given):
            case (("eq" | "ne"), 2):
                return f"({given[0]} {'==' if word == 'eq' else '!='} {given[1]})"
            case "not", 1:
                return f"(not {given[0]})"
            case "len", 1:
                return f"({given[0]} | length)"
            case "index", 2:
                return f"{given[0]}[{given[1]}]"
            case (("eq" | "ne" | "not" | "len" | "index"), count):
                raise GoTemplateError(line, f"{word} does not take {count} arguments")
        if word in _UNTAKEN:
            raise GoTemplateError(line, f"{word} is not taken: {_UNTAKEN[word]}")
        if not piped:
            raise _NotGoError
        return f"{piped} | {word}" + (f"({', '.join(operands)})" if operands else "")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise _NotGoError
        tokens.append((found.lastgroup, found.group(found.lastgroup)))
        position = found.end()
    return tokens


def _first_of(source: str, *patterns: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """What the patterns find, in order; a match inside another match is passed over."""
    position = 0
    while True:
        found = [match for pattern in patterns if (match := pattern.search(source, position)) is not None]
        if not found:
            return
        first = min(found, key=lambda match: match.start())
        yield first
        position = first.end()


def _without_dots(block: str) -> str:
    """The block with `.Name` as `Name`, except in strings."""
    return _DOT.sub(lambda found: found.group(1) or found.group(2), block)
