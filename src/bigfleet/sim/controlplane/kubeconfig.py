"""Kubeconfig files that hold their certificates and keys, so that a program needs one file only."""

import base64
from pathlib import Path
from typing import Any

import yaml

from bigfleet.sim.controlplane.certificates import Pair


def write(path: Path, cluster: str, server: str, ca: Path, user: str, pair: Pair) -> None:
    """Write the file by which `user`, who holds `pair`, reaches the cluster."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": _inline(ca)}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _inline(pair.cert), "client-key-data": _inline(pair.key)},
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
