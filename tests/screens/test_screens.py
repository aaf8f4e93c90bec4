"""Whole commands as a person sees them: text files that are compared.

``AGGVERIFY_EXPECT=1 pytest tests/screens`` writes them anew.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.choosing import thorough_but
from tests.conftest import EXAMPLES, Cli

EXPECTED = Path(__file__).parent / "expected"
AGAIN = "AGGVERIFY_EXPECT" in os.environ
BRIEF = ("--profile", "quick", "--world", "4", "--max-examples", "4")
UNHURRIED = ("--max-time", "900")
"""The default run, whose search no busy machine cuts short."""
SCREENS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    # name: file, exit code, options
    "green": ("native/sum/token_mean.py", 0, BRIEF),
    "red": ("broken/micro_batch_token_mean.py", 1, BRIEF),
    "red-quiet": ("broken/micro_batch_token_mean.py", 1, (*BRIEF, "-q")),
    "green-verbose": ("native/sum/token_mean.py", 0, (*BRIEF, "-v")),
    "assumed": ("native/sum/token_mean.py", 0, BRIEF),
    "hazard": ("hazards/multiply_by_mask.py", 0, BRIEF),
    "refused": ("slime/refusing/constant.py", 0, BRIEF),
    "question": ("native/mean/token_mean.py", 2, BRIEF),
    "fails-at-once": ("raises.py", 1, BRIEF),
    "green-default": ("native/sum/token_mean.py", 0, UNHURRIED),
    "red-default": ("broken/micro_batch_token_mean.py", 1, UNHURRIED),
}
QUICK = ("green",)
MOST = {"green": 12, "red": 30}


def steadied(out: str, *, verbose: bool) -> str:
    """Without progress and without what a change of the search alters: times and counts."""
    lines = [line for line in out.splitlines() if not re.match(r"\[ *[\d.]+ s\]", line)]
    text = re.sub(r" +[\d.]+ s\b", " 0.0 s", "\n".join(lines)).strip() + "\n"
    text = re.sub(r"[\d,]+ steps", "# steps", text)
    return re.sub(r"\b\d[\d,.e-]*", "#", text) if verbose else text


def prepared(folder: Path, name: str, file: str) -> str:
    """The example in the folder, so that no path is longer than its name."""
    if name == "fails-at-once":
        text = "def reduce(losses, batch):\n    return losses.summ() / batch.num_tokens\n"
    else:
        text = (EXAMPLES / file).read_text()
    if name == "question":
        text = re.sub(r"(?m)^AGGVERIFY = .*$", "", text)
    if name == "assumed":
        text = text.replace('"sum"}', '"sum", "assumed": {"n": "tokens of the step"}}')
    (folder / "loss.py").write_text(text)
    return "loss.py"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Its path is as short wherever the suite runs: a trace that shows it is wrapped."""
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", thorough_but(SCREENS, QUICK.__contains__, ids=str))
def test_a_screen(cli: Cli, tmp_path: Path, name: str) -> None:
    file, code, options = SCREENS[name]
    ran = cli("check", prepared(tmp_path, name, file), *options)
    assert ran.code == code, ran
    shown = steadied(ran.out.replace(f"{tmp_path}/", ""), verbose="-v" in options)
    path = EXPECTED / f"{name}.txt"
    if AGAIN:
        path.write_text(shown)
    assert shown == path.read_text()
    assert max(map(len, shown.splitlines())) <= 100
    assert len(shown.strip().splitlines()) <= MOST.get(name.removesuffix("-default"), 100)
