"""Plays `ssh` where no host can be reached: a host is a folder, and a session is a shell in it.

Called as the real one is. A folder `down` plays a host without power, and a session whose options would let a stranger
in ends as the real one could not: with code 99.
"""

import os
import sys
from pathlib import Path

DEMANDED = {"BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no"}


def main() -> None:
    root, words = Path(sys.argv[1]), sys.argv[2:]
    end = words.index("--")
    options, (address, remote) = words[:end], words[end + 1 :]
    if not set(options) >= DEMANDED or not any(word.startswith("UserKnownHostsFile=") for word in options):
        sys.exit(99)
    host = root / address
    if not host.is_dir() or (host / "down").exists():
        sys.stderr.write(f"ssh: connect to host {address} port {options[options.index('-p') + 1]}: No route to host\n")
        sys.exit(255)
    with (root / "argv.log").open("a") as log:
        log.write(" ".join(words) + "\n")
    os.chdir(host)
    os.environ["HOME"] = str(host)
    os.execv("/bin/sh", ["sh", "-c", remote])


main()
