"""The shipped functions that merge logs, under names of their own."""

import runpy
from typing import Any

from tests.conftest import EXAMPLES


def _merger(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / "log_reducer" / f"{name}.py"))["reduce_logs"]


means = _merger("means")
one_count = _merger("broken/one_count")
truncated = _merger("broken/truncated")
