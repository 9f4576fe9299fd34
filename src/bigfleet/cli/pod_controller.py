"""`bigfleet pod-controller`: one CapacityRequest for each pod of a cluster."""

import os
import socket
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import uvloop

from bigfleet.cli.program import InputError, examples, run
from bigfleet.kube.access.kubeconfig import load
from bigfleet.kube.errors import KubeConfigError
from bigfleet.podcontroller.controller import Plan
from bigfleet.podcontroller.keeper import Mode
from bigfleet.podcontroller.pod.penalties import PenaltyFileError
from bigfleet.podcontroller.run import PodControllerConfig, SelectorError, serve
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import listen_tcp_address

PROGRAM = "bigfleet-unschedulable-pod-controller"

POD_CONTROLLER_EPILOG = examples(
    "bigfleet pod-controller --kubeconfig ~/.kube/config",
    "bigfleet pod-controller --mode unschedulable-only --namespaces ml,batch",
    "bigfleet pod-controller --penalty-defaults penalties.yaml",
)


def pod_controller(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How to reach the cluster. [default: as kubectl, else the service account]"),
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="The context of the kubeconfig.")] = None,
    mode: Annotated[
        Mode, typer.Option(help="Which pods get a request: all that live, or those once found Unschedulable.")
    ] = Mode.ALL,
    namespaces: Annotated[str, typer.Option(metavar="A,B", help="Only pods of these namespaces.")] = "",
    namespace_selector: Annotated[
        str, typer.Option(metavar="SELECTOR", help="Only pods of namespaces with such labels: 'team in (a,b)'.")
    ] = "",
    penalty_defaults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Penalties by PriorityClass, as YAML; read again on change.")
    ] = None,
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the Lease and the ConfigMap of this program are.")
    ] = "bigfleet-system",
    kube_qps: Annotated[float, typer.Option(min=1, help="Calls a second to the API server.")] = 500,
    kube_burst: Annotated[int, typer.Option(min=1, help="Calls to the API server at once, after a pause.")] = 1000,
    concurrency: Annotated[int, typer.Option(min=1, max=200, help="Pods that are looked at at a time.")] = 32,
    metrics_listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="For /metrics, /healthz and /readyz.")
    ] = "127.0.0.1:8080",
    log_level: Annotated[Level, typer.Option(help="The least severe event that is logged.")] = Level.INFO,
) -> None:
    """Make one CapacityRequest for each pod of a cluster.

    It keeps each request right until its pod ends. Several may run: one works, the others wait for its Lease.
    """
    configure(log_level)
    names = tuple(sorted({name for name in namespaces.split(",") if name}))
    if names and namespace_selector:
        raise InputError("give --namespaces or --namespace-selector, not both")
    listen = listen_tcp_address(metrics_listen)
    try:
        config = PodControllerConfig(
            server=load(kubeconfig, context),
            plan=Plan(
                mode=mode,
                namespaces=names,
                namespace_selector=namespace_selector,
                concurrency=concurrency,
                instance=f"{socket.gethostname()}_{os.getpid()}",
            ),
            namespace=namespace,
            metrics_listen=listen,
            penalty_defaults=penalty_defaults,
            kube_qps=kube_qps,
            kube_burst=kube_burst,
        )
        uvloop.run(serve(config))
    except (KubeConfigError, PenaltyFileError, SelectorError) as error:
        raise InputError(str(error)) from None


def main() -> NoReturn:
    """The console script."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(epilog=POD_CONTROLLER_EPILOG.replace("bigfleet pod-controller", PROGRAM))(pod_controller)
    run(app, PROGRAM)
