"""Whether a kubelet may join an API server: it may not be newer, and at most three minor versions older."""

import re

MAX_OLDER = 3
"""Minor versions that a kubelet may be older than the API server."""

# Characters of a version that an error quotes.
_SHOWN = 64
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\D.*)?", re.DOTALL)


class SkewError(ValueError):
    """A kubelet that the API server does not serve, or a text that is no version; the error quotes both."""


def check_version(kubelet: str) -> None:
    """Raise SkewError unless the text is a version."""
    if _minor(kubelet) is None:
        raise SkewError(f"{kubelet[:_SHOWN]!r} is no version: write one such as v1.34.4")


def check_skew(kubelet: str, api_server: str) -> None:
    """Raise SkewError unless the API server supports a kubelet of that version."""
    ours, theirs = _minor(kubelet), _minor(api_server)
    both = f"kubelet {kubelet[:_SHOWN]} and API server {api_server[:_SHOWN]}"
    if ours is None or theirs is None:
        raise SkewError(f"{both}: versions look like v1.34.4")
    if ours > theirs:
        raise SkewError(f"{both}: a kubelet may not be newer than the API server")
    if ours[0] != theirs[0] or theirs[1] - ours[1] > MAX_OLDER:
        raise SkewError(f"{both}: a kubelet may be at most {MAX_OLDER} minor versions older than the API server")


def _minor(version: str) -> tuple[int, int] | None:
    found = _VERSION.fullmatch(version.strip())
    return None if found is None else (int(found[1]), int(found[2]))
