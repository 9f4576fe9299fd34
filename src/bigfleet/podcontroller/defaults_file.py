"""The file with the penalty defaults: read at the start and again when it changes. A bad new version is refused."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from bigfleet.podcontroller.pod.penalties import Defaults, PenaltyFileError, read_defaults

MAX_BYTES = 1 << 20
"""The largest file that is read."""

_LOOK_SECONDS = 5.0

_log = structlog.get_logger("bigfleet.podcontroller")


class DefaultsFile:
    """The penalty defaults in a file; none where no file is given. A file that is bad at the start is an error."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._content = b"" if path is None else _content(path)
        self._problem = ""
        self.defaults: Defaults = {} if path is None else _defaults(path, self._content)

    async def watch(self, changed: Callable[[], None]) -> None:
        """Look at the file every few seconds until cancelled; `changed` is called when the defaults have changed."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if await asyncio.to_thread(self.refresh):
                changed()

    def refresh(self) -> bool:
        """Read the file again. Returns whether the defaults have changed. A problem is logged once."""
        if self._path is None:
            return False
        try:
            content = _content(self._path)
            if content == self._content and not self._problem:
                return False
            defaults = _defaults(self._path, content)
        except PenaltyFileError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("penalty_defaults_refused", error=self._problem, advice="the former ones stay in force")
            return False
        self._content, self._problem = content, ""
        if defaults == self.defaults:
            return False
        self.defaults = defaults
        _log.info("penalty_defaults_changed", priority_classes=len(defaults))
        return True


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PenaltyFileError(str(path), f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise PenaltyFileError(str(path), f"is larger than {MAX_BYTES} bytes")
    return content


def _defaults(path: Path, content: bytes) -> Defaults:
    try:
        return read_defaults(content.decode(), str(path))
    except UnicodeDecodeError:
        raise PenaltyFileError(str(path), "is not UTF-8") from None
