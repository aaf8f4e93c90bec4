"""``snapshot``: byte-identical, moved by another order of additions, changed; missing, orphaned."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.oracles import MODES
from aggverify.snapshot.file import SCHEMA
from tests.conftest import EXAMPLES, Cli

FILE = "aggverify-snapshots/loss.get_pg_loss_reducer.txt"
ONE, TWO = ("--world", "1"), ("--world", "2")
ZIGZAG = (EXAMPLES / "slime" / "zigzag.py").read_text()
BEFORE = '''
import torch
from megatron.core import mpu
from zigzag import local_masks, masked_sums

AGGVERIFY = {"mode": "sample_mean"}

def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    """slime's default path: the sum over samples of each one's own token mean."""
    masks = local_masks(total_lengths, response_lengths, loss_masks)

    def reduce(losses):
        return sum(
            piece / torch.clamp_min(mask.sum(), 1)
            for piece, mask in zip(masked_sums(losses, masks), loss_masks, strict=True)
        )

    return reduce
'''
REFACTORED = '''
import torch
from megatron.core import mpu
from zigzag import local_masks, masked_sums

AGGVERIFY = {"mode": "sample_mean"}

def denominators(loss_masks, mode):
    """One a sample; the second mode is what the refactor is for."""
    own = [torch.clamp_min(mask.sum(), 1) for mask in loss_masks]
    return own if mode == "sample_mean" else [sum(own)] * len(own)

def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False, *,
    mode="sample_mean",
):
    masks = local_masks(total_lengths, response_lengths, loss_masks)
    divisors = denominators(loss_masks, mode)

    def reduce(losses):
        total = 0
        for piece, divisor in zip(masked_sums(losses, masks), divisors, strict=True):
            total = total + piece / divisor
        return total

    return reduce
'''
REORDERED = REFACTORED.replace(
    "in zip(masked_sums(losses, masks), divisors, strict=True)",
    "in reversed(list(zip(masked_sums(losses, masks), divisors, strict=True)))",
)
CHANGED = REFACTORED.replace('mode="sample_mean",', 'mode="prompt_mean",')
UNSTEADY = "\nimport os\n" + BEFORE.replace("return sum(", "return os.urandom(1)[0] * sum(")


@pytest.fixture
def loss(tmp_path: Path) -> Path:
    """A folder with slime's reducer, as it was before the refactor."""
    (tmp_path / "zigzag.py").write_text(ZIGZAG)
    (tmp_path / "loss.py").write_text(BEFORE)
    return tmp_path


def recorded(cli: Cli, world: tuple[str, str] = TWO) -> None:
    ran = cli("snapshot", "record", "loss.py", *world, env={"CI": ""})
    assert ran.code == 0, ran
    assert "commit it" in ran.out


def environment(folder: Path, torch: str) -> None:
    """The record says that it was made with another torch."""
    lines = (folder / FILE).read_text().split("\n")
    [at] = [n for n, line in enumerate(lines) if line.startswith("# torch ")]
    lines[at] = f"# torch {torch}"
    (folder / FILE).write_text("\n".join(lines))


def test_a_refactor_with_the_default_path_untouched(cli: Cli, loss: Path) -> None:
    recorded(cli, ONE)
    text = (loss / FILE).read_text()
    entries = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert entries == sorted(entries) and len(entries) > 20
    (loss / "loss.py").write_text(REFACTORED)
    ran = cli("snapshot", "check")
    assert ran.code == 0, ran
    assert f"sample_mean: {len(entries)} cases, byte-identical" in ran.out
    (loss / "loss.py").write_text(REORDERED)
    ran = cli("snapshot", "check")
    assert ran.code == 1, ran
    assert "moved by no more than 4 units in the last place  (" in ran.out
    assert "MOVED: " in ran.out and "changed" not in ran.out
    assert "    reported loss\n      recorded  " in ran.out


@pytest.mark.thorough
def test_another_environment_explains_another_order_of_additions(cli: Cli, loss: Path) -> None:
    recorded(cli)
    (loss / "loss.py").write_text(REORDERED)
    environment(loss, "1.0")
    ran = cli("snapshot", "check")
    assert ran.code == 0, ran
    assert "another than recorded (torch " in ran.out and " instead of 1.0)" in ran.out
    assert "warning: " in ran.out


@pytest.mark.thorough
def test_what_is_really_changed_is_drawn_on_its_smallest_case(cli: Cli, loss: Path) -> None:
    recorded(cli)
    (loss / "loss.py").write_text(CHANGED)
    environment(loss, "1.0")  # no environment excuses it
    ran = cli("snapshot", "check")
    assert ran.code == 1, ran
    assert "- sample_mean one_token_in_two_micro_batches dp1.cp1.mb1 float32  [changed]" in ran.out
    assert "weight of sample 0, response token 0\n" in ran.out
    assert "      recorded  1/2    (0x1p-1)" in ran.out
    assert "      now       1/4    (0x1p-2)" in ran.out
    assert "mask #  " in ran.out
    assert "one rank" in ran.out and "CHANGED: " in ran.out


@pytest.mark.thorough
def test_missing_and_orphaned_entries_are_failures(cli: Cli, loss: Path) -> None:
    recorded(cli)
    whole = (loss / FILE).read_text()
    lines = whole.rstrip("\n").split("\n")
    first = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    (loss / FILE).write_text("\n".join(lines[:first] + lines[first + 1 :]))
    ran = cli("snapshot", "check")
    assert ran.code == 1 and "1 missing from the record" in ran.out, ran
    more = [lines[first].replace(" a_", " b_", 1), "token_mean x dp1.cp1.mb1 float64 value=0x1p+0"]
    (loss / FILE).write_text("\n".join([*lines, *more]))
    ran = cli("snapshot", "check")
    assert ran.code == 1, ran
    assert "1 orphaned: not run any more  (not run 1 of 1)" in ran.out
    assert "  token_mean: 1 case\n" in ran.out


@pytest.mark.thorough
def test_a_nonlinear_one_and_one_that_refuses(cli: Cli, tmp_path: Path) -> None:
    text = (EXAMPLES / "nonlinear" / "gspo.py").read_text()
    (tmp_path / "loss.py").write_text(text)
    recorded(cli)
    name = "aggverify-snapshots/loss.reduce.txt"
    assert cli("snapshot", "check").code == 0
    no = '    if batch.dp_size > 1:\n        raise ValueError("no")\n'
    raising = text.replace("    tokens", f"{no}    tokens", 1)
    assert raising != text
    (tmp_path / "loss.py").write_text(raising)
    ran = cli("snapshot", "check", name)
    assert ran.code == 1, ran
    assert "what comes of the step\n      recorded  a result with value, " in ran.out
    assert "now       exception:ValueError" in ran.out
    recorded(cli)
    assert cli("snapshot", "check").code == 0


@pytest.mark.thorough
def test_six_modes_stay_below_200_kb(cli: Cli, tmp_path: Path) -> None:
    modes = [name for name in MODES if name != "constant"][:5]
    text = (EXAMPLES / "native" / "sum" / "prompt_mean.py").read_text()
    (tmp_path / "loss.py").write_text(text.replace("AGGVERIFY", "_"))
    options = [word for mode in (*modes, "constant") for word in ("--mode", mode)]
    ran = cli("snapshot", "record", "loss.py", *options, "--divisor", "16", "--force")
    assert ran.code == 0, ran
    path = tmp_path / "aggverify-snapshots/loss.reduce.txt"
    assert path.stat().st_size < 200_000
    entries = [line.split(" ")[:4] for line in path.read_text().split("\n") if line[:1].isalpha()]
    dtypes = {(case, layout): set() for _, case, layout, _ in entries}
    for _, case, layout, dtype in entries:
        dtypes[case, layout].add(dtype)
    assert all("float32" in found and len(found) == 2 for found in dtypes.values())


@pytest.mark.thorough
def test_what_differs_by_itself_is_not_recorded(cli: Cli, loss: Path) -> None:
    (loss / "loss.py").write_text(UNSTEADY)
    ran = cli("snapshot", "record", "loss.py", *TWO, "--force")
    assert ran.code == 2, ran
    assert "the same step twice gives different bits (sample_mean " in ran.err
    assert not (loss / FILE).exists()


def test_nothing_is_recorded_on_ci_or_checked_without_a_record(cli: Cli, loss: Path) -> None:
    ran = cli("snapshot", "record", "loss.py", env={"CI": "true"})
    assert ran.code == 2 and "nothing is recorded on CI" in ran.err, ran
    ran = cli("snapshot", "check")
    assert ran.code == 2 and "aggverify snapshot record TARGET" in ran.err, ran


def test_a_snapshot_runs_no_file_outside_the_project(cli: Cli, loss: Path) -> None:
    (loss / "aggverify-snapshots").mkdir()
    header = f"# aggverify-snapshot {SCHEMA}\n# corpus 2\n# torch 1\n# processor 1\n# threads 1\n"
    (loss / FILE).write_text(f"{header}# target ../other.py:reduce\n")
    ran = cli("snapshot", "check")
    assert ran.code == 2 and "does not lie in the project" in ran.err, ran
    (loss / FILE).write_text(
        f"{header}# target loss.py:f\n"
        '# claim no-mode {"convention": "native", "engine": "os:abort"}'
    )
    ran = cli("snapshot", "check")
    assert ran.code == 2 and "say --engine MODULE:OBJECT" in ran.err, ran
