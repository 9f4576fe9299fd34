"""The command lines of one control plane's programs: as in production, but one of each, on loopback, made to hurry."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from bigfleet.sim.controlplane.certificates import Authority
from bigfleet.sim.controlplane.programs.binaries import Binaries

LOOPBACK = "127.0.0.1"

KUBELET_LABEL = "sim.bigfleet.lucy.sh/kubelet"
"""The label of a Node whose kubelet KWOK plays (heartbeats, pods that run), for as long as it has the value below.

It is a label and not an annotation, because the API server tells KWOK when a Node drops out of a watch by labels. KWOK
filters annotations by itself, and goes on renewing the Lease of a Node that has lost its annotation."""
KUBELET_KWOK = "kwok"

# A thousand pods must be bound and run within seconds; the default limits spare API servers that have other clients.
_QPS = ("--kube-api-qps=500", "--kube-api-burst=1000")


class Ports(msgspec.Struct, frozen=True):
    """The port of everything that listens."""

    etcd: int
    etcd_peer: int
    api_server: int
    scheduler: int
    controller_manager: int
    kwok: int


class Layout(msgspec.Struct, frozen=True):
    """Where one cluster keeps its files."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def etcd(self) -> Path:
        """The folder of etcd's data."""
        return self.folder / "etcd"

    def kubeconfig_of(self, program: str) -> Path:
        """The kubeconfig of one of the control plane's own programs."""
        return self.folder / f"{program}.kubeconfig"


def commands(layout: Layout, binaries: Binaries, authority: Authority, ports: Ports) -> Mapping[str, list[str]]:
    """The command of each program, by its name, in the order in which they start."""
    ca, serving = (
        authority.pair,
        authority.server("serving", LOOPBACK, "localhost", "kubernetes.default.svc", "10.96.0.1"),
    )
    etcd_client = authority.client("etcd-client")
    accounts = authority.signing_key("service-accounts")
    etcd, peer = f"https://{LOOPBACK}:{ports.etcd}", f"https://{LOOPBACK}:{ports.etcd_peer}"
    served = (f"--bind-address={LOOPBACK}", f"--tls-cert-file={serving.cert}", f"--tls-private-key-file={serving.key}")

    def delegating(program: str) -> tuple[str, ...]:
        names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return tuple(f"--{name}={layout.kubeconfig_of(program)}" for name in names)

    return {
        "etcd": [
            str(binaries["etcd"]),
            "--name=only",
            f"--data-dir={layout.etcd}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=only={peer}",
            *(
                f"--{kind}{flag}"
                for kind in ("", "peer-")
                for flag in (
                    f"cert-file={serving.cert}",
                    f"key-file={serving.key}",
                    f"trusted-ca-file={ca.cert}",
                    "client-cert-auth=true",
                )
            ),
            # The data is thrown away at the end, so it need not survive a loss of power.
            "--unsafe-no-fsync=true",
            "--log-level=warn",
        ],
        "kube-apiserver": [
            str(binaries["kube-apiserver"]),
            *served,
            f"--secure-port={ports.api_server}",
            f"--advertise-address={LOOPBACK}",
            # There is no other server to agree with, and loopback is no address for an endpoint.
            "--endpoint-reconciler-type=none",
            f"--etcd-servers={etcd}",
            f"--etcd-cafile={ca.cert}",
            f"--etcd-certfile={etcd_client.cert}",
            f"--etcd-keyfile={etcd_client.key}",
            f"--client-ca-file={ca.cert}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth=true",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts.cert}",
            f"--service-account-signing-key-file={accounts.key}",
            "--service-cluster-ip-range=10.96.0.0/16",
        ],
        "kube-controller-manager": [
            str(binaries["kube-controller-manager"]),
            *served,
            *delegating("kube-controller-manager"),
            *_QPS,
            f"--secure-port={ports.controller_manager}",
            "--leader-elect=false",
            # Without accounts of their own the controllers may not approve certificates.
            "--use-service-account-credentials=true",
            "--controllers=*,bootstrapsigner,tokencleaner",
            f"--root-ca-file={ca.cert}",
            f"--cluster-signing-cert-file={ca.cert}",
            f"--cluster-signing-key-file={ca.key}",
            f"--service-account-private-key-file={accounts.key}",
        ],
        "kube-scheduler": [
            str(binaries["kube-scheduler"]),
            *served,
            *delegating("kube-scheduler"),
            *_QPS,
            f"--secure-port={ports.scheduler}",
            "--leader-elect=false",
        ],
        "kwok": [
            str(binaries["kwok"]),
            f"--kubeconfig={layout.kubeconfig}",
            f"--server-address={LOOPBACK}:{ports.kwok}",
            # As a kubelet's Lease, which is renewed every 10 s.
            "--node-lease-duration-seconds=40",
            # Room for more pods than its default of 254.
            "--cidr=10.128.0.1/9",
            f"--manage-nodes-with-label-selector={KUBELET_LABEL}={KUBELET_KWOK}",
        ],
    }
