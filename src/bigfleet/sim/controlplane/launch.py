"""Starting a program that must not outlive the process that starts it, even if that process is killed with SIGKILL.

The kernel's parent-death signal ends the program. A small interpreter asks the kernel for the signal and then becomes
the program, because code between fork and exec would run in a process with other threads, which is unsafe.
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
    """A command that runs the given one, and ends it with the thread that started it. Its first word must be a path."""
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
