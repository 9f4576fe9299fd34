"""The compiled engine in a test's process; `python -m tests.shared.engine` builds it ahead of all workers of a run."""

from bigfleet.engine.compiled.ensure import ensure

if __name__ == "__main__":
    ensure()
