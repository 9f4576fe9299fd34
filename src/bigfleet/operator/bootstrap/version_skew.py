"""Whether a kubelet may join an API server: never newer, and at most three minor versions older."""

import re

MAX_OLDER = 3

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\D.*)?", re.DOTALL)


class SkewError(ValueError):
    """A kubelet that the API server does not serve, or a version that says nothing; names both."""


def check_version(kubelet: str) -> None:
    """SkewError unless it is a version at all."""
    if _minor(kubelet) is None:
        raise SkewError(f"{kubelet[:64]!r} is no version: write one such as v1.34.4")


def check_skew(kubelet: str, api_server: str) -> None:
    """SkewError unless the API server supports a kubelet of that version."""
    ours, theirs = _minor(kubelet), _minor(api_server)
    both = f"kubelet {kubelet[:64]} and API server {api_server[:64]}"
    if ours is None or theirs is None:
        raise SkewError(f"{both}: versions look like v1.34.4")
    if ours > theirs:
        raise SkewError(f"{both}: a kubelet may not be newer than the API server")
    if ours[0] != theirs[0] or theirs[1] - ours[1] > MAX_OLDER:
        raise SkewError(f"{both}: a kubelet may be at most {MAX_OLDER} minor versions older than the API server")


def _minor(version: str) -> tuple[int, int] | None:
    found = _VERSION.fullmatch(version.strip())
    return None if found is None else (int(found[1]), int(found[2]))
