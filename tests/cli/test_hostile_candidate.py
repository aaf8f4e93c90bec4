"""What a reducer does to its process, and writes, is told and contained: the whole command."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from aggverify.codes.state import State
from aggverify.model import load
from aggverify.world import memory
from tests.choosing import LATER
from tests.conftest import Cli

BRIEF = ["--profile", "quick", "--max-examples", "1"]
START = """
import os, sys, time
import torch
import torch.distributed as dist
AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

def reduce(losses, batch):
    odd = dist.get_world_size() > 1 and dist.get_rank() == dist.get_world_size() - 1
    FAULT
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0)
    return kept.sum() / max(batch.num_tokens, 1)
"""
FAKE = (
    r"x\n::error::pwned\naggverify: conforms\n\x1b[2J\x1b]8;;http://evil\x07 \u202e \u2028##[error]"
)


@pytest.mark.thorough
def test_a_hang_shows_every_ranks_stack_and_collective(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(START.replace("FAULT", "if odd: time.sleep(3600)"))
    ran = cli("check", "r.py", "--world", "2", *BRIEF)
    assert ran.code == 1, ran
    assert "  rank 1 sleeps or waits outside any collective, for good\n" in ran.out
    assert "    rank 0 waits in all_reduce float64[" in ran.out
    asleep = f'rank 1, outside any collective: File "{tmp_path}/r.py", line 9, in reduce'
    assert asleep in ran.flat, ran
    assert "you compute" not in ran.out


@pytest.mark.thorough
def test_a_death_shows_what_was_printed_last(cli: Cli, tmp_path: Path) -> None:
    fault = f'if odd: print("{FAKE}", flush=True); os._exit(9)'
    (tmp_path / "r.py").write_text(START.replace("FAULT", fault))
    ran = cli("check", "r.py", "--world", "2", *BRIEF)
    assert ran.code == 1, ran
    assert "  rank 1 exited with status 9\n" in ran.out
    assert "    rank 1 printed last\n" in ran.out
    assert "      | aggverify: conforms\n" in ran.out
    check_harmless(ran.out)


def test_state_left_changed_is_told_and_put_right(cli: Cli, tmp_path: Path) -> None:
    change = "torch.set_default_dtype(torch.float16); os.environ['A_B'] = 'c'"
    (tmp_path / "r.py").write_text(START.replace("FAULT", change))
    ran = cli("check", "r.py", "--world", "1", *BRIEF)
    assert ran.code == 0, ran
    assert "AGVW11 Leaves global state changed: environment, torch default dtype; put" in ran.flat


KILLS = """
    mark = __file__ + "." + str(WHEN)
    if not os.path.exists(mark):
        open(mark, "w").close(); os.kill(os.getpid(), 9)"""


@pytest.mark.thorough
def test_a_rank_killed_from_outside_is_not_held_against_the_reducer(
    cli: Cli, tmp_path: Path
) -> None:
    # Ended in flight with others, by itself, and when run again; then no more.
    kills = "".join(KILLS.replace("WHEN", str(n)) for n in range(3))
    (tmp_path / "r.py").write_text(START.replace("\n    FAULT", kills))
    ran = cli("check", "r.py", "--world", "1", *BRIEF)
    assert ran.code == 0, ran
    assert "AGVW12 Ranks were ended from outside: by SIGKILL, " in ran.flat


@pytest.mark.thorough
def test_a_reducer_that_kills_its_rank_every_time_is_found(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(START.replace("FAULT", "if odd: os.kill(os.getpid(), 9)"))
    ran = cli("check", "r.py", "--world", "2", *BRIEF)
    assert ran.code == 1, ran
    assert "AGV403 A rank died" in ran.out
    assert "  rank 1 was ended by SIGKILL\n" in ran.out
    assert "not again in fresh ranks" not in ran.out


@pytest.mark.thorough
def test_ranks_that_the_kernel_ends_for_memory_cannot_be_judged(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = count()
    monkeypatch.setattr(memory, "oom_kills", lambda: ("/a/memory.events", next(counts)))
    (tmp_path / "r.py").write_text(
        START.replace("FAULT", "if batch.num_microbatches > 2: os.kill(os.getpid(), 9)")
    )
    ran = cli("check", "r.py", "--world", "2", "--report", "json", *BRIEF)
    assert (ran.code, "AGV403" in ran.out) == (2, False), ran
    [verdict] = load(tmp_path / ".aggverify/verdict.json").verdicts
    not_judged = [c.reason for c in verdict.checks if c.state is State.NOT_JUDGED]
    assert not_judged, ran
    assert all(
        r and "by SIGKILL for lack of memory, 4 times in a row; the kernel reports: oom_kill " in r
        for r in not_judged
    ), ran


@pytest.mark.exhaustive
def test_slow_is_a_figure_and_no_failure(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(START.replace("FAULT", "time.sleep(0.02)"))
    ran = cli("check", "r.py", "--world", "2", *BRIEF, "-v")
    assert ran.code == 0, ran
    assert "slow about 20 ms a call, by the clock" in ran.flat


@pytest.mark.thorough
@pytest.mark.parametrize("device", [LATER("meta"), "xla"])
def test_defaults_set_at_import_break_nothing_of_ours(
    cli: Cli, tmp_path: Path, device: str
) -> None:
    # A device without storage; one that torch knows by name, and on which it can make nothing.
    preset = f'torch.set_default_device("{device}"); torch.set_default_dtype(torch.float16)\n'
    text = START.replace("FAULT", "pass").replace("\ndef reduce", f"{preset}\ndef reduce")
    (tmp_path / "r.py").write_text(text)
    ran = cli("check", "r.py", "--world", "2", *BRIEF)
    assert ran.code == 0, ran
    assert "AGVW11" not in ran.out


@pytest.mark.parametrize("where", ["reduce", "import"])
def test_what_a_reducer_says_cannot_pass_for_the_tools_words(
    cli: Cli, tmp_path: Path, where: str
) -> None:
    fault = f'raise ValueError("{FAKE}")'
    text = START.replace("FAULT", fault if where == "reduce" else "pass")
    (tmp_path / "r.py").write_text(text if where == "reduce" else text + fault)
    ran = cli("check", "r.py", "--world", "1", *BRIEF)
    assert ran.code == (1 if where == "reduce" else 2), ran
    assert "pwned" in ran.out + ran.err
    check_harmless(ran.out + ran.err)


def check_harmless(text: str) -> None:
    """No line that begins like ours or like a command, and nothing invisible."""
    lines = text.split("\n")
    assert not any(line.startswith("aggverify: conforms") for line in lines), text
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in lines), text
    assert all(line.isprintable() for line in lines), text
