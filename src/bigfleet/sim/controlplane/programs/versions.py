"""Which programs a control plane is made of, which versions of them fit, and how each tells its version.

The versions that are pinned here are those in hack/kube's go.mod files; a test compares the two.
"""

import re

import msgspec

KUBERNETES = "1.34.4"
"""The release that is built where none that fits is installed."""

Version = tuple[int, int, int]

_NUMBERS = re.compile(r"\bv?(\d{1,5})\.(\d{1,5})\.(\d{1,5})")
_ANY_LATER: Version = (100_000, 0, 0)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One binary, and how it is built."""

    name: str
    package: str
    """The Go package that it is built from."""
    pinned: str
    """The version that is built."""
    module: str = "."
    """The folder of its Go module in hack/kube."""
    asked: tuple[str, ...] = ("--version",)
    """The arguments to which it answers with its version."""
    least: Version
    """The oldest version that fits."""
    below: Version = _ANY_LATER
    """The first version that is too new."""

    def fits(self, version: Version) -> bool:
        """Whether a binary of this version will do."""
        return self.least <= version < self.below


def _of_kubernetes(name: str, asked: tuple[str, ...] = ("--version",)) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name=name, package=package, pinned=KUBERNETES, asked=asked, least=(1, 34, 0), below=(1, 35, 0))


ETCD = Program(name="etcd", package="go.etcd.io/etcd/server/v3", pinned="3.6.4", least=(3, 5, 0))
API_SERVER = _of_kubernetes("kube-apiserver")
SCHEDULER = _of_kubernetes("kube-scheduler")
CONTROLLER_MANAGER = _of_kubernetes("kube-controller-manager")
KUBECTL = _of_kubernetes("kubectl", ("version", "--client"))
KWOK = Program(name="kwok", package="sigs.k8s.io/kwok/cmd/kwok", pinned="0.7.0", module="kwok", least=(0, 7, 0))

PROGRAMS = (ETCD, API_SERVER, SCHEDULER, CONTROLLER_MANAGER, KUBECTL, KWOK)


def parse(said: str) -> Version:
    """The first version in a program's output; ValueError if there is none."""
    found = _NUMBERS.search(said)
    if found is None:
        raise ValueError(f"no version is in {said[:80]!r}")
    return int(found[1]), int(found[2]), int(found[3])
