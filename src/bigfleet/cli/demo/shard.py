"""The demo's shard: `bigfleet shard` in a process that ends with the demo, with a shorter wait of the roll-up guard.

The guard's wait is no setting, on purpose: nobody in a hurry should turn down what protects a fleet from one bad
roll-up. The demo is in a hurry, and its screen says so.
"""

import os
import sys
import threading
from typing import NoReturn

from bigfleet.cli.bigfleet import main
from bigfleet.shard.demand import rollup_guard


def _end_with_the_demo() -> NoReturn:
    """End this process when standard input closes: the demo holds its other end, which closes however the demo ends."""
    # sys.stdin is not used, because an ordinary end of the process would wait for its lock.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    rollup_guard.WAIT_SECONDS = float(sys.argv.pop(1))
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    main()
