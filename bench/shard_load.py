"""Load for a shard, as a process of its own: many clusters on few connections, and how soon roll-ups are acknowledged.

`python -m bench.shard_load --target HOST:PORT --clusters 1000 --rate 1000 --seconds 600` writes one JSON line a second
to stderr, and at the end one with all figures to stdout.
"""

import argparse
import asyncio
import json
import resource
import sys
from collections.abc import Sequence

from bigfleet.model.resources import demand
from bigfleet.sim.load.load import Load, Options


def options_of(arguments: Sequence[str]) -> Options:
    """The options of a command line; a mistake in it ends the program."""
    parser = argparse.ArgumentParser(prog="python -m bench.shard_load", description="Put a shard under load.")
    defaults = Options(target="")
    parser.add_argument("--target", required=True, metavar="HOST:PORT", help="the shard, without TLS")
    for name, kind, meaning in (
        ("clusters", int, "streams, each a cluster of its own"),
        ("rate", float, "roll-ups a second in all; 0 for idle streams"),
        ("seconds", float, "for how long, once all streams are open"),
        ("settle", float, "for how long before that, with nothing counted"),
        ("changed", float, "share of roll-ups that change the demand"),
        ("rows", int, "rows of a roll-up"),
        ("pods", int, "pods of a cluster, over all rows"),
        ("connect-rate", float, "streams opened a second"),
        ("prefix", str, "what cluster ids begin with"),
        ("burst", int, "pods, each on a machine of its own, that the first cluster asks for at once"),
        ("burst-at", float, "when, in seconds from the start of the measurement"),
    ):
        default = getattr(defaults, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{meaning} (default {default})")
    parser.add_argument("--pod", default="cpu=1,memory=2Gi", help="what one pod asks for (default %(default)s)")
    parser.add_argument("--stranger", action="store_true", help="be an operator without features of ours")
    given = vars(parser.parse_args(arguments))
    for name in ("clusters", "rows", "connect_rate"):
        if given[name] <= 0:
            parser.error(f"--{name.replace('_', '-')}: must be above 0")
    try:
        given["pod"] = demand(dict(part.split("=", 1) for part in given["pod"].split(",")))
    except ValueError as error:
        parser.error(f"--pod: {error}; write it as in cpu=1,memory=2Gi")
    return Options(**given)


def _tell(figures: dict[str, object]) -> None:
    print(json.dumps(figures), file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the load that the command line describes."""
    options = options_of(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def load() -> dict[str, object]:
        return await Load(options, _tell).run()

    print(json.dumps(asyncio.run(load())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
