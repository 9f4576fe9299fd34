"""Warming up compiles every function that Python enters, so that no decision of a running shard ever waits for it."""

import importlib
import os
import pkgutil
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

import bigfleet.engine
from bigfleet.engine.warmup import warm_up


def entries() -> dict[str, Any]:
    modules = pkgutil.walk_packages(bigfleet.engine.__path__, "bigfleet.engine.")
    names = {name: value for m in modules for name, value in vars(importlib.import_module(m.name)).items()}
    compiled = {name: value for name, value in names.items() if isinstance(value, Dispatcher)}
    return {name: value for name, value in compiled.items() if isinstance(vars(value)["_cache"], FunctionCache)}


def test_warming_up_leaves_no_entry_uncompiled() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        assert entries() == {}
        return
    warm_up()
    assert len(entries()) >= 12
    assert {name for name, entry in entries().items() if not entry.signatures} == set()
