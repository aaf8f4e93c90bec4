"""The command line end to end: exit codes, messages, replay, interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import EXAMPLES, ROOT, Cli

BROKEN = EXAMPLES / "broken" / "micro_batch_token_mean.py"
FIXED = EXAMPLES / "native" / "accumulated_mean" / "token_mean.py"


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["replay", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom aggverify.cli import main\n"
        f"sys.argv = ['aggverify', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'hypothesis', 'numpy', 'mpmath', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file: "),
        ("def reduce(losses, batch)\n    return 1\n", "line 1: expected ':'"),
        ("import no_such_package\n", "No module named 'no_such_package'"),
        ("import os\nos._exit(3)\n", "status 3"),
        ("raise SystemExit(0)\n", "SystemExit"),
        ("def loss(x):\n    return x\n", "loss(x)"),
        ("", "found no public function"),
    ],
    ids=["missing", "syntax", "import", "exit", "sys-exit", "no-reducer", "empty"],
)
def test_what_cannot_be_judged_exits_2(
    cli: Cli, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "r.py").write_text(content)
    ran = cli("check", "r.py")
    assert ran.code == 2, ran
    assert message in ran.err
    assert "aggverify/" not in ran.err, "a traceback of ours"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "token_men"], "did you mean 'token_mean'"),
        (["--mode", "constant"], "needs --divisor"),
        (["--profile", "fats"], "did you mean 'fast'|unknown profile 'fats'"),
        (["--world", "9"], "between 1 and 8, got 9"),
        (["--report", "pdf"], "unknown report format 'pdf'"),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_options_exit_2(cli: Cli, options: list[str], message: str) -> None:
    import re

    ran = cli("check", FIXED, *options)
    assert ran.code == 2, ran
    assert re.search(message, ran.err)


def test_identifies_the_mode(cli: Cli, tmp_path: Path) -> None:
    source = (EXAMPLES / "slime" / "sample_mean.py").read_text()
    (tmp_path / "zigzag.py").write_text((EXAMPLES / "slime" / "zigzag.py").read_text())
    lines = [line for line in source.splitlines() if not line.startswith("AGGVERIFY")]
    (tmp_path / "hook.py").write_text("\n".join(lines))
    ran = cli("check", "hook.py", "--profile", "quick")
    assert ran.code == 0, ran
    assert "sample_mean  [identified]" in ran.out
    assert "engine      megatron-sample [slime's default]" in ran.out


def test_one_reducer_may_be_two_modes_under_two_engines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import torch\n\n\ndef get_pg_loss_reducer(total_lengths, response_lengths, loss_masks, "
        "calculate_per_token_loss=False):\n"
        "    mask = torch.cat(loss_masks).bool()\n"
        "    return lambda losses: torch.where(mask, losses, 0.0).sum()\n"
    )
    ran = cli("check", "r.py", "--profile", "quick", "--world", "1")
    assert ran.code == 0, ran
    assert "sequence_sum  [identified]" in ran.out
    assert "with --engine megatron-token it implements token_mean" in ran.out


def test_no_known_mode_still_checks_invariance(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import torch\n\n\ndef reduce(losses, batch):\n"
        "    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)\n"
        "    return kept.sum() / max(batch.num_tokens, 1) ** 2\n"
    )
    ran = cli("check", "r.py", "--profile", "quick")
    assert ran.code == 0, ran
    assert "none recognised: invariance only" in ran.out
    assert "the same step scalar in every layout" in ran.out


def test_replay_tells_failed_and_fixed(cli: Cli, tmp_path: Path) -> None:
    assert cli("check", BROKEN, "--profile", "quick").code == 1
    case = next((tmp_path / ".aggverify" / "cases").glob("*.json"))
    again = cli("replay", case.stem)
    assert again.code == 1, again
    assert again.out.startswith(f"FAILED  case {case.stem}: AGV20")
    fixed = cli("replay", case, FIXED)
    assert fixed.code == 0, fixed
    assert fixed.out.startswith(f"FIXED   case {case.stem}: AGV20")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "none is stored here"),
        (["case.json"], "a stored case is a JSON object"),
        (["broken.json"], "cannot read a case"),
    ],
)
def test_replay_of_nothing_is_an_error(
    cli: Cli, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "case.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    ran = cli("replay", *arguments)
    assert ran.code == 2, ran
    assert ran.err.startswith("ERROR   case ")
    assert message in ran.err


def _started(tmp_path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "aggverify", "check", str(FIXED), "--profile", "thorough"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(_descendants(process.pid)) < 4:
        assert process.poll() is None, "ended before its ranks were up"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found, frontier = set(), {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def _gone(pids: set[int]) -> bool:
    """Whether none of these runs any more (zombies of a lost parent do not count)."""
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            alive.add(pid)
    return not alive


def _wait_until_gone(pids: set[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _gone(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return _gone(pids)


def test_ctrl_c_exits_130_and_leaves_nothing(tmp_path: Path) -> None:
    process = _started(tmp_path)
    children = _descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert _wait_until_gone(children, 2)


def test_sigkill_of_the_parent_leaves_no_process(tmp_path: Path) -> None:
    process = _started(tmp_path)
    children = _descendants(process.pid)
    process.kill()
    process.communicate(timeout=20)
    assert _wait_until_gone(children, 2)
