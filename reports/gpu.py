"""What runs on CUDA devices, beside the same on processors, in ``reports/gpu.md``.

``python reports/gpu.py``: where torch finds a device, a run of some examples under each backend
there is, one after another, and the tests marked ``gpu``; where it finds none it says so, and
leaves what was recorded elsewhere.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "reports" / "gpu.md"
EXAMPLES = (
    "native/sum/token_mean.py",
    "native/sum/prompt_mean.py",
    "native/mean/sample_mean.py",
    "broken/micro_batch_token_mean.py",
)
HOW = {"gloo, 4 ranks": ("gloo", 4), "cuda+gloo, 4 ranks": ("cuda+gloo", 4), "nccl": ("nccl", 8)}
HEAD = """# On GPUs

Written by `python reports/gpu.py`; do not edit.
"""


def python(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


def why_not() -> str:
    """Why nothing can run on a device, "" where it can."""
    code = (
        "from aggverify.world import CUDA_GLOO, Pool\n"
        "with Pool() as pool: pool.joined_by(CUDA_GLOO.name, 1)"
    )
    done = python("-c", code)
    return done.stderr.strip().splitlines()[-1].partition(": ")[2] if done.returncode else ""


def card() -> str:
    code = (
        "import torch; from torch import cuda; "
        "print(f'{cuda.device_count()} x {cuda.get_device_name()}, "
        "torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {cuda.nccl.version()}')"
    )
    return python("-c", code).stdout.strip()


def tests() -> str:
    done = python("-m", "pytest", "-q", "-m", "gpu", "tests/devices")
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "\n".join(line for line in lines[-30:] if not re.fullmatch(r"[.sFE\s]+\[.*\]", line))


def row(path: str, how: str) -> str:
    backend, world = HOW[how]
    with tempfile.TemporaryDirectory() as folder:
        arguments = ("--backend", backend, "--world", str(world), "--report", "json")
        began = time.monotonic()
        done = python(
            *("-m", "aggverify", "check", str(ROOT / "examples" / path), *arguments),
            folder=Path(folder),
        )
        seconds = time.monotonic() - began
        stored = Path(folder, ".aggverify", "verdict.json")
        made = json.loads(stored.read_text()) if stored.exists() else {"verdicts": []}
    codes = [f["code"] for verdict in made["verdicts"] for f in verdict["findings"]]
    steps = sum(verdict["executed"] for verdict in made["verdicts"])
    told = ", ".join(codes) or done.stderr.strip().splitlines()[-1:] or "conforms"
    return f"| `{path}` | {how} | {done.returncode} | {told} | {steps:,} | {seconds:.0f} s |"


def report() -> str:
    day = datetime.date.today().isoformat()
    rows = [row(path, how) for path in EXAMPLES for how in HOW]
    table = ["| example | ranks | exit | told | steps | time |", "|---|---|---|---|---|---|", *rows]
    return f"{HEAD}\n{card()}; {day}\n\n" + "\n".join(table) + f"\n\n```\n{tests()}\n```\n"


if __name__ == "__main__":
    if reason := why_not():
        sys.exit(reason)
    TABLE.write_text(report(), encoding="utf-8")
