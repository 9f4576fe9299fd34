"""The command line of a provider: an author's `__main__` is one call of `main`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import uvloop

from bigfleet.providerkit.backend import Backend, BackendError
from bigfleet.providerkit.cross_check import CrossCheckedBackend
from bigfleet.providerkit.faults import FaultyBackend
from bigfleet.providerkit.offer import OfferError
from bigfleet.providerkit.provider import BackendIncompleteError
from bigfleet.providerkit.server.serve import Endpoint, serve
from bigfleet.providerkit.store import MemoryStore, SQLiteStore, StateError, Store
from bigfleet.telemetry.logs import Level, configure
from bigfleet.transport.address import AddressError, listen_address, listen_tcp_address
from bigfleet.transport.listen import ListenError
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.tls import TLSConfigError, TLSFiles

IN_MEMORY = "memory"


class ConfigError(Exception):
    """A configuration file cannot be used. Authors raise it, with a text that names the file and the field."""


USER_ERRORS: tuple[type[Exception], ...] = (
    ConfigError,
    OfferError,
    BackendError,
    BackendIncompleteError,
    StateError,
    AddressError,
    ListenError,
    TLSConfigError,
)
"""Errors at the start that a person can mend: they are shown as one line."""


def main(name: str, make: Callable[[Path | None], Backend]) -> NoReturn:
    """Run a provider: parse the command line, make the backend from its configuration file, and serve until stopped."""
    options = _parser(name).parse_args()
    configure(Level(options.log_level))
    try:
        tls = TLSFiles.from_flags(options.tls_cert, options.tls_key, options.tls_ca)
        endpoint = Endpoint(
            listen_address(options.listen),
            listen_tcp_address(options.metrics_listen) if options.metrics_listen else None,
            None if tls is None else LiveTLS.start(tls),
        )
        backend = make(options.config)
        if options.conformance_faults:
            backend = FaultyBackend(backend)
            backend = CrossCheckedBackend(backend) if backend.has("create") else backend
        uvloop.run(serve(backend, open_store(options.state, backend.scheme), endpoint))
    except USER_ERRORS as error:
        sys.stderr.write(f"{name}: {' '.join(str(error).split())}\n")
        sys.exit(1)
    sys.exit(0)


def open_store(state: str, scheme: str) -> Store:
    """The store that `--state` names."""
    return MemoryStore() if state == IN_MEMORY else SQLiteStore(Path(state), scheme)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description=f"The BigFleet provider {name}.",
        epilog=f"Example: {name} --state {name}.state --listen 127.0.0.1:7760",
    )
    add = parser.add_argument
    add("--listen", default="127.0.0.1:7760", metavar="ADDRESS", help="HOST:PORT or unix:PATH (%(default)s)")
    add("--metrics-listen", default="", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz there")
    add(
        "--state",
        required=True,
        metavar="FILE",
        help=f"keeps the state; {IN_MEMORY}: no file, lost at the end",
    )
    add("--config", type=Path, metavar="FILE", help="the provider's own configuration")
    add("--tls-cert", metavar="FILE", help="certificate chain, PEM; all three TLS files or none")
    add("--tls-key", metavar="FILE", help="its private key, PEM")
    add("--tls-ca", metavar="FILE", help="the CA bundle that callers are checked against, PEM")
    add("--log-level", default="info", choices=[str(level) for level in Level], help="(%(default)s)")
    add(
        "--conformance-faults",
        action="store_true",
        help="for bigfleet conformance alone: let the first machines fail, and check the backend",
    )
    return parser
