"""The compiled engine, once for all workers of a run; `python -m tests.shared.engine` compiles it ahead of them."""

import fcntl

from bigfleet.engine.jit import FOLDER
from bigfleet.engine.warmup import warm_up


def compile_once() -> None:
    """Compile what is not in the cache yet. Whoever comes second waits for the first, and finds all of it there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        warm_up()


if __name__ == "__main__":
    compile_once()
