"""Running one command on one host with the system's `ssh`.

The remote command is fixed, and everything else goes by standard input. So nothing that a caller sent is ever a word of
a command line.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
from bigfleet.providerkit import BackendError

from bigfleet_ssh_hosts.inventory import SSH, Host

UNREACHABLE = 255
"""The exit code of `ssh` itself when it could not reach the host."""

_KEPT_BYTES = 1500
_CHUNK_BYTES = 64 * 1024


class Result(msgspec.Struct, frozen=True):
    """How a command ended, and the last of its output."""

    code: int
    said: str

    def __str__(self) -> str:
        what = "could not be reached" if self.code == UNREACHABLE else f"ended with code {self.code}"
        return f"{what}: {self.said}" if self.said else what


class Client:
    """Runs commands on hosts, up to `parallel` at a time."""

    def __init__(self, settings: SSH) -> None:
        self._settings = settings
        self._sessions = asyncio.Semaphore(settings.parallel)
        self._threads = ThreadPoolExecutor(settings.parallel, "ssh")

    async def run(self, host: Host, remote: str, stdin: bytes = b"") -> Result:
        """Run a command line in the remote shell. A caller that is cancelled ends the session."""
        async with self._sessions:
            process = self._start(host, remote, stdin)
            ending = asyncio.get_running_loop().run_in_executor(self._threads, _followed, process)
            try:
                return await asyncio.shield(ending)
            except asyncio.CancelledError:
                # The whole group is killed: a child such as a proxy command would hold the pipe open.
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                await ending
                raise

    def close(self) -> None:
        """End the threads. All sessions have ended before."""
        self._threads.shutdown()

    def _start(self, host: Host, remote: str, stdin: bytes) -> "subprocess.Popen[bytes]":
        """Start a session. Not with the event loop's subprocesses: uvloop forks, which breaks a process with gRPC."""
        # Standard input is a file in memory: a blob is secret, and a pipe would have to be fed while output is read.
        with os.fdopen(os.memfd_create("errand"), "w+b", buffering=0) as given:
            given.write(stdin)
            given.seek(0)
            try:
                return subprocess.Popen(
                    self._words(host, remote),
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise BackendError(f"{self._settings.client[0]}: {error.strerror or error}") from error

    def _words(self, host: Host, remote: str) -> Sequence[str]:
        settings = self._settings
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            # In quotes, because ssh would read a name with a space as two files.
            "UserKnownHostsFile": f'"{settings.known_hosts}"',
            "GlobalKnownHostsFile": "/dev/null",
            "UpdateHostKeys": "no",
            "ConnectTimeout": str(settings.connect_seconds),
            # A host that loses power in the middle of a script is noticed within a minute.
            "ServerAliveInterval": "15",
            "ServerAliveCountMax": "4",
            "ForwardAgent": "no",
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "LogLevel": "ERROR",
        }
        words = [*settings.client, "-T", "-F", "none", "-p", str(host.port or settings.port)]
        if settings.identity_file:
            words += ["-i", settings.identity_file, "-o", "IdentitiesOnly=yes"]
        for name, value in options.items():
            words += ["-o", f"{name}={value}"]
        return [*words, "-l", host.user or settings.user, "--", host.address, remote]


def _followed(process: "subprocess.Popen[bytes]") -> Result:
    """Wait for the end of a session. All of its output is read, so that it never blocks, and the last part is kept."""
    kept = b""
    with process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        while chunk := process.stdout.read1(_CHUNK_BYTES):  # type: ignore[attr-defined] # it is buffered
            kept = (kept + chunk)[-_KEPT_BYTES:]
    return Result(process.returncode, " ".join(kept.decode(errors="replace").split()))
