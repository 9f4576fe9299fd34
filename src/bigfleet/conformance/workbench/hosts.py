"""The hosts that exist, as `--hosts-cmd` lists them.

The provider cannot tell of a host that it has forgotten, so the list comes from a command beside it.
"""

import asyncio
import shlex
from subprocess import DEVNULL, PIPE

from bigfleet.conformance.errors import NotCheckedError, TargetError


class HostList:
    """Asks a command for the reference of every host that exists, one a line."""

    def __init__(self, command: str, seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._at_start: set[str] = set()

    async def remember(self) -> None:
        """Take the hosts of this moment for those that the run does not answer for."""
        try:
            self._at_start = await self._all()
        except NotCheckedError as error:
            raise TargetError(str(error)) from None

    async def made_since(self) -> set[str]:
        """The hosts that exist now and did not exist when the run began."""
        return await self._all() - self._at_start

    async def _all(self) -> set[str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self._command), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
            )
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from None
        try:
            async with asyncio.timeout(self._seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            raise self._failed(f"did not end within {self._seconds:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            said = errors.decode(errors="replace").strip()
            raise self._failed(f"ended with code {process.returncode}{': ' if said else ''}{said}")
        return set(output.decode(errors="replace").split())

    def _failed(self, why: str) -> NotCheckedError:
        return NotCheckedError("hosts", f"--hosts-cmd {self._command!r}: {why}")
