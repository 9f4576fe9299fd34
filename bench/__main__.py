"""`make bench` and `make bench ONLY=model`: measure every part, or one."""

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import engine, engine_cost, engine_hosts, kube, model, provider, shard
from bench.harness import Report

PARTS: dict[str, tuple[Callable[[Report], None], ...]] = {
    "model": (model.run,),
    "engine": (engine.run, engine_hosts.run, engine_cost.run),
    "provider": (provider.run,),
    "shard": (shard.run,),
    "kube": (kube.run,),
}


def main(arguments: list[str]) -> int:
    """Run the named parts, print the table, write build/bench.json."""
    unknown = [name for name in arguments if name not in PARTS]
    if unknown:
        print(f"bench: no part named {unknown[0]!r}; the parts are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    report = Report(Console())
    for name in arguments or PARTS:
        for run in PARTS[name]:
            run(report)
    report.show()
    target = Path("build/bench.json")
    report.write(target)
    report.console.print(f"also written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
