"""``pytest`` beside ``aggverify check``: one reducer, four modes, start-up included.

    python benchmarks/pytest_face.py [ROUNDS]

Rounds are interleaved, so that whatever else runs on the machine takes from both; printed are the
seconds by the clock and of processor time, of every round and in the middle, and their ratios. Also
printed: what the plugin costs a suite that has no reducer in it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REDUCER = """
import torch


def apply_loss_reduction_to_advantages_minibatch(
    advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len, prompt_boundaries=None
):
    counts, rows = loss_mask.sum(1, keepdim=True).clamp(min=1), len(loss_mask)
    if loss_reduction == "token_mean":
        return advantages / loss_mask.sum().clamp(min=1)
    if loss_reduction == "sequence_mean":
        return advantages / (counts * rows)
    if loss_reduction == "seq_mean_token_sum_norm":
        return advantages / (rows * max_seq_len)
    prompts = [
        advantages[start:end] / (loss_mask[start:end].sum().clamp(min=1) * len(prompt_boundaries))
        for start, end in prompt_boundaries
    ]
    return torch.cat(prompts)


def reduce_loss(loss, loss_mask):
    return (loss * loss_mask).sum()
"""
MODES = ("token_mean", "sample_mean", "constant", "prompt_mean")
TEST = f"""
import aggverify

test_it = aggverify.conformance("reducer.py", modes={MODES}, divisor=16.0)
"""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
CHECK = [sys.executable, "-m", "aggverify", "check", "reducer.py", "--divisor", "16"]
COMMANDS = {
    "check": [*CHECK, *(word for mode in MODES for word in ("--mode", mode))],
    "pytest": PYTEST,
    "pytest -n auto": [*PYTEST, "-n", "auto"],
}
EMPTY = "def test_nothing():\n    pass\n"


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds by the clock, and of processor time with all that it started.

    Modules are compiled once, as where they are installed, whatever this machine says of that.
    """
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    began, used = time.perf_counter(), processor_time()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - began, processor_time() - used


def processor_time() -> float:
    """Of all processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def plugin() -> float:
    """Seconds of processor time that a suite without reducers takes longer for the plugin."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_empty.py").write_text(EMPTY)
        (folder / "pytest.ini").write_text("[pytest]\n")
        found: dict[str, list[float]] = {"with": [], "without": []}
        timed(PYTEST, folder)
        for _ in range(25):
            found["with"].append(timed(PYTEST, folder)[1])
            found["without"].append(timed([*PYTEST, "-p", "no:aggverify"], folder)[1])
        low = {which: statistics.quantiles(of)[0] for which, of in found.items()}
        return low["with"] - low["without"]


def main() -> None:
    """Print one line per round, then the ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "reducer.py").write_text(REDUCER)
        (folder / "test_reducer.py").write_text(TEST)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for command in COMMANDS.values():
            timed(command, folder)
        for n in range(rounds):
            for which, command in COMMANDS.items():
                found[which].append(timed(command, folder))
            told = (f"{which} {s[-1][0]:.1f} s, {s[-1][1]:.1f} s cpu" for which, s in found.items())
            print(f"round {n + 1}: {'; '.join(told)}", flush=True)
    for kind, what in enumerate(("by the clock", "processor time")):
        middle = {which: statistics.median(s[kind] for s in found[which]) for which in found}
        print(f"{what}: check {middle['check']:.1f} s")
        for which in [*COMMANDS][1:]:
            pairs = zip(found["check"], found[which], strict=True)
            ratio = statistics.median(one[kind] / check[kind] for check, one in pairs)
            print(f"{what}: {which} {middle[which]:.1f} s, ratio {ratio:.2f}")
    print(f"plugin: {1000 * plugin():.1f} ms")


if __name__ == "__main__":
    main()
