"""Stored verdict documents, and what every report format makes of them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path

from aggverify import model
from aggverify.report import text
from aggverify.report.document import document
from aggverify.report.formats import OWN
from aggverify.run.session import verify
from aggverify.world import Pool
from tests.conftest import ROOT
from tests.golden.rows import requests

STORED = Path(__file__).parent / "documents.json.xz"
ROWS = (
    "example examples/slime/sample_mean.py 0",
    "example examples/slime/refusing/constant.py 0",
    "example examples/hazards/multiply_by_mask.py 0",
    "example examples/nonlinear/gspo.py 0",
    "example examples/broken/cp_shard_mean.py 0",
    "example examples/broken/micro_batch_token_mean.py 0",
    "example examples/broken/kl_local_count.py 0",
    "example examples/broken/reported_loss.py 0",
    "example examples/broken/configured_window.py 0",
    "example examples/policy_loss/broken/own_mean.py 0",
    "mutant corpus.logs:own_means_logged 0",
    "mutant corpus.faults:conditional_on_rank 0",
)
"""Right, refusing, a hazard, nonlinear; weights, an auxiliary term, a reported loss, several steps,
a policy loss, a log; ranks that wait for each other."""
Formats = Mapping[str, str]


def written(of: model.Document) -> Formats:
    """The document in every format, and as the screen shows it at each verbosity."""
    screens = {
        "screen": text.USUAL,
        "screen -q": text.Style(quiet=True),
        "screen of 60 columns": text.Style(width=60),
        "screen of a suite": text.IN_SUITE,
    }
    safe = model.harmless(of)
    return {name: each.render(of) for name, each in OWN.items()} | {
        name: "".join(f"{line}\n" for v in safe.verdicts for line in text.verdict_lines(v, style))
        for name, style in screens.items()
    }


def stored() -> dict[str, Formats]:
    """Every format of every document, by its row's name."""
    found: dict[str, Formats] = json.loads(lzma.decompress(STORED.read_bytes()))
    return found


def keep(documents: Iterator[tuple[str, model.Document]]) -> None:
    """Store all of them, with what every format makes of each."""
    made = {name: written(of) for name, of in documents}
    STORED.write_bytes(lzma.compress(json.dumps(made, indent=1).encode()))


def made(pool: Pool) -> Iterator[tuple[str, model.Document]]:
    """Run each row; paths and versions of this machine are left out."""
    for name in ROWS:
        verdicts = verify(requests()[name], lambda event: None, pool=pool)
        data = json.loads(model.render(document(verdicts)))
        yield name, model.from_json(json.loads(json.dumps(data).replace(str(ROOT), ".")))
