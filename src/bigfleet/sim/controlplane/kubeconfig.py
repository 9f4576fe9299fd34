"""Kubeconfig files that hold their certificates and keys, so that a program needs one file only."""

from pathlib import Path

import yaml

from bigfleet.kube.access.kubeconfig_file import ClusterEntry, UserEntry, encoded, one_cluster, written
from bigfleet.sim.controlplane.certificates import Pair


def write(path: Path, cluster: str, server: str, ca: Path, user: str, pair: Pair) -> None:
    """Write the file by which `user`, who holds `pair`, reaches the cluster."""
    entry = ClusterEntry(server=server, certificate_authority_data=encoded(ca.read_bytes()))
    who = UserEntry(
        client_certificate_data=encoded(pair.cert.read_bytes()), client_key_data=encoded(pair.key.read_bytes())
    )
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(written(one_cluster(cluster, entry, user, who)), sort_keys=False))
