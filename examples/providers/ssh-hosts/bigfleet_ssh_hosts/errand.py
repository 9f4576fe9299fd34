"""An errand: the text that is sent to a host's shell, with a script and the blob that the script is run on.

The text is one function that its last line calls. So a text that arrives only in part runs nothing.
"""

import base64
import shlex
from importlib import resources
from pathlib import Path

import msgspec

from bigfleet_ssh_hosts.inventory import Scripts

BUSY = 75
"""The exit code of an errand that gave up because another one still runs on the host."""

LOG = "bootstrap.log"
"""The file with a bootstrap's output, in the work folder. It may contain secrets, so it stays on the host."""

_TEXT = """\
errand() {{
    umask 077
    mkdir -p {work_dir} && cd {work_dir} || exit 70
    exec 9>lock
    flock -w {patience} 9 || {{ echo 'another errand is still at work on this host'; exit {busy}; }}
    # Under the lock these can only be leftovers of an errand that was interrupted.
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
    # A process that the script leaves running must not hold the lock.
    "$dir/script" "$dir/blob" {output}9>&- </dev/null || exit
    {after}
}}
errand
"""


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One script, its environment and its blob."""

    script: bytes
    environment: dict[str, str]
    blob: bytes = b""
    secret: bool = False
    """The output stays on the host."""
    tidies: bool = False
    """Success removes the output that the last secret errand left."""

    def text(self, work_dir: str, patience: int) -> bytes:
        """The shell text. `patience` is how many seconds the errand waits for another that still runs."""
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
    """The script of this name from the inventory, or the one that comes with the program."""
    own: str = getattr(scripts, name)
    return Path(own).read_bytes() if own else resources.files(__package__).joinpath(f"scripts/{name}.sh").read_bytes()
