"""What is sent to a host's shell: a script, the blob if there is one, and a shell text that runs the one on the other.

The text is one function, called in its last line, so that a connection that breaks runs nothing by halves.
"""

import base64
import shlex
from importlib import resources
from pathlib import Path

import msgspec

from bigfleet_ssh_hosts.inventory import Scripts

BUSY = 75
"""The exit code of an errand that found another one still at work on the host."""

LOG = "bootstrap.log"
"""Where a bootstrap's output stays, in the work folder: it may hold what the blob holds, so it stays on the host."""

_TEXT = """\
errand() {{
    umask 077
    mkdir -p {work_dir} && cd {work_dir} || exit 70
    exec 9>lock
    flock -w {patience} 9 || {{ echo 'another errand is still at work on this host'; exit {busy}; }}
    # Under the lock these can only be what an errand left that was cut off.
    rm -rf errand.*
    dir=$(mktemp -d "$PWD/errand.XXXXXX") || exit 70
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 129' HUP INT TERM
    base64 -d >"$dir/script" <<'END' || exit 70
{script}
END
    base64 -d >"$dir/blob" <<'END' || exit 70
{blob}
END
    chmod 700 "$dir/script"
    export {environment}
    # What the script starts and leaves running must not hold the lock.
    "$dir/script" "$dir/blob" {output}9>&- </dev/null || exit
    {after}
}}
errand
"""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One script and what it is told."""

    script: bytes
    environment: dict[str, str]
    blob: bytes = b""
    secret: bool = False
    """Its output stays on the host."""
    tidies: bool = False
    """Once it has succeeded, the output of the last secret one goes too."""

    def text(self, work_dir: str, patience: int) -> bytes:
        """The shell text; `patience` is the seconds that an errand still at work is given."""
        return _TEXT.format(
            work_dir=shlex.quote(work_dir),
            patience=patience,
            busy=BUSY,
            script=base64.encodebytes(self.script).decode().rstrip(),
            blob=base64.encodebytes(self.blob).decode().rstrip(),
            environment=" ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items()),
            output=f">{LOG} 2>&1 " if self.secret else "",
            after=f"rm -f {LOG}" if self.tidies else ":",
        ).encode()


def script(scripts: Scripts, name: str) -> bytes:
    """The operator's own script of this name, or the one that comes with the program."""
    own: str = getattr(scripts, name)
    return Path(own).read_bytes() if own else resources.files(__package__).joinpath(f"scripts/{name}.sh").read_bytes()
