"""YAML of unknown origin as plain values: dicts with string keys, lists, strings, numbers, booleans and None.

Stricter than yaml.safe_load, because a manifest that two programs read must mean the same to both, and because a
short text must not become a huge value: no aliases, no duplicate keys, no custom tags, bounded size and depth.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import yaml

MAX_CHARACTERS = 4 * 1024 * 1024
MAX_NESTING = 32
MAX_NUMBER_CHARACTERS = 64

_TAG = "tag:yaml.org,2002:"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
# Kubernetes takes an unquoted timestamp, and the lone `=` of YAML 1.1, for the strings they look like.
_STRINGS = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value"})
_OTHERS: dict[str, Callable[[Any], object]] = {
    _TAG + "null": _CONSTRUCTOR.construct_yaml_null,
    _TAG + "bool": _CONSTRUCTOR.construct_yaml_bool,
    _TAG + "int": _CONSTRUCTOR.construct_yaml_int,
    _TAG + "float": _CONSTRUCTOR.construct_yaml_float,
}


class PlainYamlError(ValueError):
    """Text that is no YAML, or more than plain. Names the document (from 1; 0 is the whole text) and the line."""

    def __init__(self, document: int, problem: str) -> None:
        self.document, self.problem = document, problem
        super().__init__(f"document {document}: {problem}" if document else problem)


def documents(text: str) -> Iterator[tuple[int, object]]:
    """Every document of the text with its number, from 1; an empty one is None. Raises PlainYamlError."""
    if len(text) > MAX_CHARACTERS:
        raise PlainYamlError(0, f"{len(text)} characters are too many: split it, {MAX_CHARACTERS} at most")
    number = 0
    try:
        for event in (events := yaml.parse(text, _LOADER)):
            if isinstance(event, yaml.DocumentStartEvent):
                number += 1
                yield number, _plain(next(events), events, MAX_NESTING)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise PlainYamlError(number, f"{line}{error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise PlainYamlError(number, f"no YAML: {' '.join(str(error).split())}") from None


def _plain(event: Any, events: Iterator[yaml.Event], depth: int) -> object:
    """The value that begins with this event.

    It is built from events and not by yaml.compose, whose recursion in C overflows the stack on deeply nested text.
    """
    if depth == 0:
        raise _refused(event, f"nested more than {MAX_NESTING} deep")
    if isinstance(event, yaml.AliasEvent):
        raise _refused(event, "an alias is not taken: write the value out")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if event.tag not in (None, _TAG + "map", _TAG + "seq"):
        raise _refused(event, f"the tag {event.tag!r} has no meaning here")
    if isinstance(event, yaml.SequenceStartEvent):
        return [_plain(item, events, depth - 1) for item in _until(yaml.SequenceEndEvent, events)]
    mapping: dict[str, object] = {}
    for key_event in _until(yaml.MappingEndEvent, events):
        key = _plain(key_event, events, depth - 1)
        if not isinstance(key, str):
            raise _refused(key_event, f"the key {key!r} is no string: put it in quotes")
        if key in mapping:
            raise _refused(key_event, f"the key {key!r} stands twice in one mapping")
        mapping[key] = _plain(next(events), events, depth - 1)
    return mapping


def _until(end: type[yaml.Event], events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    return itertools.takewhile(lambda event: not isinstance(event, end), events)


def _scalar(event: Any) -> object:
    value = event.value
    tag = event.tag or _RESOLVER.resolve(yaml.ScalarNode, value, event.implicit)
    if tag in _STRINGS:
        return value
    construct = _OTHERS.get(tag)
    if construct is None:
        raise _refused(event, f"the tag {tag!r} has no meaning here")
    # YAML 1.1 has numbers to the base of 60, whose cost is quadratic in their length.
    if len(value) > MAX_NUMBER_CHARACTERS:
        raise _refused(event, f"a number of {len(value)} characters: put it in quotes")
    try:
        return construct(yaml.ScalarNode(tag, value))
    except (ValueError, LookupError, ArithmeticError):
        raise _refused(event, f"{value!r} does not fit its tag {tag!r}") from None


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
