"""Starting a program that must not outlive whoever starts it, even if that is killed with SIGKILL.

The kernel's parent-death signal does it. It is asked for by a small interpreter that then becomes the program: code
between fork and exec would run in a process with other threads, which is unsafe.
"""

import os
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
# The parent may have ended before the signal was asked for.
_BECOME = f"""
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""


def launched(command: Sequence[str]) -> list[str]:
    """The command that runs this one, whose first word is a path, and ends it with the thread that started it."""
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
