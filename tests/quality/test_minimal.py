"""Every broken example ends on the same smallest step from other seeds than the first, too, which
``tests/cli/test_examples.py`` starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_examples import BROKEN, smallest
from tests.conftest import EXAMPLES, SEEDS, Cli


@pytest.mark.thorough
@pytest.mark.skipif(len(SEEDS) == 1, reason="only with AGGVERIFY_SEEDS, as tox -e quality sets it")
@pytest.mark.parametrize("file", BROKEN)
def test_smallest_step(cli: Cli, tmp_path: Path, file: str) -> None:
    code, _, size = BROKEN[file]
    for seed in SEEDS[1:]:
        folder = tmp_path / str(seed)
        options = ("--seed", str(seed), "--profile", "quick", "--report-dir", folder / ".aggverify")
        assert cli("check", EXAMPLES / "broken" / file, *options).code == 1
        assert smallest(folder, code) == size, f"seed {seed}"
