"""Where nothing can be called, an adapter is printed: saved as it is, it is judged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.adapted import (
    MEGATRON,
    NEMO,
    OPENRLHF,
    ROLL,
    SIGNATURES,
    SLIME,
    VERL,
    Signature,
)
from tests.choosing import thorough_at_times
from tests.conftest import EXAMPLES, Cli

KNOWN = (VERL, ROLL, OPENRLHF, NEMO, MEGATRON, SLIME)
"""Those that a convention of ours calls."""
UNKNOWN = tuple(signature for signature in SIGNATURES if signature not in KNOWN)
BRIEF = ["--profile", "quick", "--max-examples", "3", "--world", "2"]


def check(cli: Cli, folder: Path, source: str) -> tuple[int, dict[str, object]]:
    """Exit code and the only verdict of the adapter that is printed for a file."""
    (folder / "theirs.py").write_text(source)
    shutil.copy(EXAMPLES / "slime" / "zigzag.py", folder)
    printed = cli("check", "theirs.py")
    assert printed.code == 2, printed
    assert "no reducer in theirs.py" in printed.err, printed
    [save, use] = [x.split() for x in printed.err.splitlines() if x.startswith("        agg")][-2:]
    assert save[:2] == use[:2] == ["aggverify", "check"]
    (folder / use[2]).write_text(printed.out)
    ran = cli("check", use[2], *BRIEF, "--exit-first", "--report", "json")
    document = json.loads((folder / ".aggverify" / "verdict.json").read_text())
    [verdict] = document["verdicts"]
    return ran.code, verdict


SOME = thorough_at_times(UNKNOWN, 2, ids=lambda s: s.name)


@pytest.mark.parametrize("signature", SOME)
def test_a_right_function_is_right_through_it(
    cli: Cli, tmp_path: Path, signature: Signature
) -> None:
    code, verdict = check(cli, tmp_path, signature.source)
    failed = [f["code"] for f in verdict["findings"] if f["effect"] == "fails"]
    assert (verdict["mode"], failed) == (signature.mode, [])
    assert code == (0 if signature.engine else code)


@pytest.mark.parametrize("signature", thorough_at_times(UNKNOWN, 3, ids=lambda s: s.name))
def test_a_wrong_one_is_still_found(cli: Cli, tmp_path: Path, signature: Signature) -> None:
    right, wrong = signature.wrong
    assert right in signature.source
    code, verdict = check(cli, tmp_path, signature.source.replace(right, wrong))
    assert code == 1
    assert [f for f in verdict["findings"] if f["effect"] == "fails"]
