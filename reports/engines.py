"""Every formula against the libraries' own engines that it stands for, in ``reports/engines.md``.

``python reports/engines.py [FORMULA ...]`` runs all modes and conventions that can be right under
each of these formulas (all by default) on the fixed cases of ``tests/engines/agreement.py``, once
under the formula and once under every engine, and stops at the first case on which they disagree.
It takes all those engines: what is not installed is fetched from PyPI for it.
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
    read,
    rows,
    table,
)
from tests.engines.wheels import MEGATRON_CORE, fetched  # noqa: E402

PATH = ROOT / "reports" / "engines.md"
HEAD = """# Formulas and the engines that they stand for

Written by `python reports/engines.py`, with Python {python}, torch {torch} on processors and
{others}. A heading is a formula, a column a library's own engine (in capitals one of its other
settings, `aggverify/engines/variants.py`, with reducers of ours only). In a cell: on how many of
the fixed cases the weights under the two agree within the proven bound, with equal losses and
counts; `=` bit for bit on all of them, `(n =)` on n of them. None disagrees: it would not have been
written. The cases: {sizes} sizes with up to 8 ranks (D*C) and 4 micro-batches, of each a ragged
step, one with an empty rank, and one with equal micro-batches, in float32 and float64, as far as
the convention has such. Megatron-core multiplies by a float32 reciprocal of its count: the bound is
that of float32 there. Modes that take a promise (`--group-size`, `--micro-batch-size`) are left
out.

Formulas alone, for which no library's engine runs here: {alone}.
"""


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


def main(formulas: Sequence[str]) -> None:
    found = dict(read(PATH.read_text(encoding="utf-8")) if PATH.exists() else {})
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, str(fetched(Path(folder), *MEGATRON_CORE)))
        with Pool(LIMITS) as pool:
            for formula in formulas:
                found = {name: agreed for name, agreed in found.items() if name[0] != formula}
                wanted = (row for row in rows() if row.formula == formula)
                for row, name, agreed in compared(wanted, pool):
                    found[formula, row.convention, row.mode, name] = agreed
                    print(formula, row.convention, row.mode, name, agreed.text, flush=True)
                write(found)


if __name__ == "__main__":
    main(sys.argv[1:] or FORMULAS)
