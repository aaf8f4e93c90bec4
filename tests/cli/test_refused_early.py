"""A mode that is none is refused before torch is imported, by an adapter's names as by ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("said", "wrong", "near"),
    [
        ((), "token_maen", "token_mean"),
        (("--convention", "verl"), "seq-mean-token-summ", "seq-mean-token-sum"),
        (("--adapter", "reports/adapters/liger.py"), "luspoo", "luspo"),
    ],
)
def test_before_torch_is_imported(said: tuple[str, ...], wrong: str, near: str) -> None:
    code = (
        "import sys\nfrom aggverify.cli import main\n"
        f"sys.argv = ['aggverify', 'check', 'no.py:f', '--mode', {wrong!r}, *{said!r}]\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2, ran
    assert f"unknown mode {wrong!r}; did you mean {near!r}?" in ran.stderr
