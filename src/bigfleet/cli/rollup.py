"""`bigfleet rollup`: the demand that a set of CapacityRequests makes, without any cluster."""

import time
from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.program import check_id, console, examples
from bigfleet.cli.requests.manifests import example_requests, read_requests
from bigfleet.cli.requests.rollup_table import show_rollup
from bigfleet.model.demand.aggregate import aggregate
from bigfleet.model.demand.need import Rollup

ROLLUP_EPILOG = examples(
    "bigfleet rollup my-requests.yaml",
    "bigfleet rollup examples/capacity-requests --cluster-id shop",
)


def rollup(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Manifests, or folders of them; the examples if none is named.")
    ] = None,
    cluster_id: Annotated[str, typer.Option(help="The cluster that asks.")] = "example",
) -> None:
    """Add CapacityRequests up and show the demand they make.

    A roll-up is all that a cluster wants. Its operator adds up the requests of all pods into rows of equal units, and
    sends the rows to its shard every few seconds. Each roll-up replaces the one before.
    """
    check_id(cluster_id, "--cluster-id")
    requests = read_requests(paths or [example_requests()])
    show_rollup(
        Rollup(cluster_id=cluster_id, timestamp_unix_nanos=time.time_ns(), needs=aggregate(requests)),
        len(requests),
        console(),
    )
