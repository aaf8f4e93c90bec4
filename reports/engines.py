"""Every formula against the libraries' own engines that it stands for, in ``reports/engines.md``.

``python reports/engines.py [FORMULA ...]`` (or ``--missing``: what the report lacks) runs all modes
and conventions that can be right under each of these formulas (all by default) on the fixed cases
of ``tests/engines/agreement.py``, once under the formula and once under every engine, and stops at
the first case on which they disagree. It takes all those engines: what is not installed is fetched
from PyPI for it.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.engines.agreement import (  # noqa: E402
    FORMULAS,
    SIZES,
    Found,
    alone,
    compared,
    named,
    planned,
    read,
    rows,
    table,
)
from tests.engines.wheels import ACCELERATE, DEEPSPEED, MEGATRON_CORE, fetched, installed  # noqa: E402

PATH = ROOT / "reports" / "engines.md"
HEAD = """# Formulas and the engines that they stand for

Written by `python reports/engines.py`, with Python {python}, torch {torch} on processors and
{others}. A heading is a formula, a column a library's own engine (in capitals one of its other
settings, `aggverify/engines/variants.py`, with reducers of ours only). In a cell: on how many of
the fixed cases the weights under the two agree within the proven bound, with equal losses and
counts; `=` bit for bit on all of them, `(n =)` on n of them. None disagrees: it would not have been
written. The cases: {sizes} sizes with up to 8 ranks (D*C) and 4 micro-batches, of each a ragged
step, one with an empty rank, and one with equal micro-batches, in float32 and float64, as far as
the convention has such. Megatron-core multiplies by a float32 reciprocal of its count, DeepSpeed's
gradients travel in float32: the bound is that of float32 there. Modes that take a promise
(`--group-size`, `--micro-batch-size`) are left out.

Formulas alone, for which no library's engine runs here: {alone}.
"""


def told(packages: Sequence[str]) -> str:
    return packages[0].replace("==", " ")


def write(found: Found) -> None:
    told = {
        "python": platform.python_version(),
        "torch": version("torch"),
        "sizes": str(len(SIZES)),
    }
    told["alone"] = ", ".join(f"`{name}`" for name in alone())
    parts = [HEAD.format(**told, others=" ".join(MEGATRON_CORE))]
    for formula in FORMULAS:
        parts += ["", f"## `{formula}`", "", *table(formula, found)]
    PATH.write_text("\n".join(parts) + "\n", encoding="utf-8")


def main(asked: Sequence[str]) -> None:
    found = dict(read(PATH.read_text(encoding="utf-8")) if PATH.exists() else {})
    planned_rows = [*rows()]
    if asked == ["--missing"]:
        wanted = [row for row in planned_rows if not named(row) <= found.keys()]
    else:
        wanted = [row for row in planned_rows if row.formula in (asked or FORMULAS)]
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, str(fetched(Path(folder), *MEGATRON_CORE)))
        sys.path.insert(0, str(installed(Path(folder) / "accelerate", *ACCELERATE)))
        sys.path.insert(0, str(installed(Path(folder) / "deepspeed", *DEEPSPEED)))
        with Pool(LIMITS) as pool:
            for row, name, agreed in compared(wanted, pool):
                found[row.formula, row.convention, row.mode, name] = agreed
                print(row.formula, row.convention, row.mode, name, agreed.text, flush=True)
                write({key: found[key] for key in found if key in planned()})


if __name__ == "__main__":
    main(sys.argv[1:])
