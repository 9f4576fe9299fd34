"""The demo's shard: `bigfleet shard` in a process that ends with the demo, one wait of it shortened that nobody sets.

That wait is the roll-up guard's. It is no setting on purpose: what protects a fleet from one bad roll-up must not be
turned down by somebody in a hurry. The demo is in a hurry, and its screen says so.
"""

import os
import sys
import threading
from typing import NoReturn

from bigfleet.cli.bigfleet import main
from bigfleet.shard.demand import rollup_guard


def _end_with_the_demo() -> NoReturn:
    """The demo holds the other end of standard input; however it ends, that closes."""
    # Not by way of sys.stdin, whose lock an ordinary end of the process would wait for.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    rollup_guard.WAIT_SECONDS = float(sys.argv.pop(1))
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    main()
