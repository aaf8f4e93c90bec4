"""What an adapter's file has in addition to its declaration, imported: in ranks only."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggverify.conventions.base import Bound, Output, Site
from aggverify.conventions.trainer import context

if TYPE_CHECKING:
    from torch import Tensor

CALL, MERGE = "call", "merge_logs"
PREFIX = "_adapter_"
"""Of the modules that adapters are imported as."""


@lru_cache(maxsize=16)
def loaded(path: str, function: str = CALL) -> Callable[..., Any]:
    """Return the adapter's ``call``, or another one of its functions, imported: in ranks only."""
    name = f"{PREFIX}{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a .py file, which the parent has read
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found: Callable[..., Any] = getattr(module, function)
    return found


def merging(path: str, bound: Bound, site: Site) -> Bound:
    """Return the calls of a case, with all of its logs merged in the place of the last one.

    The others have none.
    """
    merge, count = loaded(path, MERGE), site.case.layout.num_microbatches
    logs: dict[int, Any] = {}

    def called(k: int, losses: Tensor) -> Output:
        out = bound(k, losses)
        logs[k] = out.log
        every = [log for _, log in sorted(logs.items()) if log is not None]
        whole = len(every) == count and k == count - 1 and not site.virtual
        return out._replace(log=merge(every, context(site)) if whole else None)

    return called
