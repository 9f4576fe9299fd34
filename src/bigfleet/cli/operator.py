"""`bigfleet operator`: the per-cluster agent."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer
import uvloop

from bigfleet.cli.program import InputError, examples, run
from bigfleet.operator import config as settings
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import dial_address, listen_tcp_address
from bigfleet.transport.tls import TLSFiles

OPERATOR_EPILOG = examples(
    "bigfleet operator --cluster-id prod-eu --shard-address 127.0.0.1:7780",
    "bigfleet operator --cluster-id a --shard-address 127.0.0.1:7780 --kubeconfig a.kubeconfig --rollup-interval 2s",
    "bigfleet operator --cluster-id prod-eu --shard-address shard.example:7780 --tls-cert tls.crt --tls-key tls.key "
    "--tls-ca ca.crt",
)


def operator(
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="The cluster; with TLS the one in its certificate.")],
    shard_address: Annotated[str, typer.Option(metavar="ADDRESS", help="The shard: HOST:PORT or unix:PATH.")],
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="[default: $KUBECONFIG, ~/.kube/config, then the pod's service account]"),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context of the kubeconfig. [default: its current]")
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Where the operator's Lease is. [default: the pod's own, else bigfleet-system]"
        ),
    ] = "",
    rollup_interval: Annotated[str, typer.Option(metavar="TIME", help="Between two roll-ups; 1s at least.")] = "10s",
    acknowledge_concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Requests marked Acknowledged at a time.")
    ] = 16,
    kube_qps: Annotated[
        float, typer.Option(metavar="N", min=1, max=100_000, help="Calls to the API server a second, in the long run.")
    ] = 50,
    kube_burst: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="Calls to the API server at once, after a pause.")
    ] = 100,
    bootstrap_template_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="User data of new machines, as Jinja2. [default: built in]")
    ] = None,
    api_endpoint: Annotated[
        str,
        typer.Option(metavar="URL", help="The API server as new machines reach it. [default: from cluster-info]"),
    ] = "",
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The API server's CA bundle, PEM. [default: from cluster-info]")
    ] = None,
    kubelet_version: Annotated[
        str, typer.Option(metavar="VERSION", help="What the template installs, to be checked against the API server.")
    ] = "",
    cluster_dns: Annotated[
        list[str] | None, typer.Option(metavar="IP", help="DNS server of the cluster, for kubelets; repeatable.")
    ] = None,
    metrics_listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="For /metrics, /healthz and /readyz.")
    ] = "127.0.0.1:8770",
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM; all three TLS files or none.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_ca: Annotated[str | None, typer.Option(help="The CA bundle that the shard is checked against, PEM.")] = None,
    log_level: Annotated[Level, typer.Option(help="The least severe event that is logged.")] = Level.INFO,
) -> None:
    """Run the agent of one cluster.

    It reports demand, lets machines join and empties nodes, until told to stop. It dials the shard and the API
    server, and nothing dials it. Copies may run: one of them works, by a Lease.
    """
    configure(log_level)
    # The Kubernetes client takes a while to import, which `--help` need not wait for.
    from bigfleet.kube.errors import KubeConfigError  # noqa: PLC0415
    from bigfleet.operator.bootstrap.template import BootstrapTemplateError  # noqa: PLC0415
    from bigfleet.operator.run import serve  # noqa: PLC0415

    try:
        chosen = settings.OperatorConfig(
            cluster_id=settings.cluster_id(cluster_id),
            shard_address=dial_address(shard_address),
            metrics_listen=listen_tcp_address(metrics_listen),
            kubeconfig=kubeconfig,
            context=context,
            namespace=settings.namespace(namespace),
            rollup_interval=settings.interval(rollup_interval),
            acknowledge_concurrency=acknowledge_concurrency,
            kube_qps=kube_qps,
            kube_burst=kube_burst,
            bootstrap_template_file=bootstrap_template_file,
            api_endpoint=api_endpoint,
            ca_file=ca_file,
            kubelet_version=settings.kubelet_version(kubelet_version),
            cluster_dns=tuple(cluster_dns or ()),
            tls=TLSFiles.from_flags(tls_cert, tls_key, tls_ca),
        )
        uvloop.run(serve(chosen))
    except (settings.OperatorConfigError, KubeConfigError, BootstrapTemplateError) as error:
        raise InputError(str(error)) from None


app = typer.Typer(name="bigfleet-operator", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(epilog=OPERATOR_EPILOG.replace("bigfleet operator", "bigfleet-operator"))(operator)


def main() -> NoReturn:
    """The console script."""
    run(app, "bigfleet-operator")
