"""Four pull requests, each of which breaks a reducer as slime, miles, SkyRL or verl once did, and
the comment that each would get: in a throw-away repository, on a branch each.

``python reports/pull_requests.py [slime|miles|skyrl|verl]...`` prints them; without a name all of
them, which ``reports/pull_requests.md`` keeps. A minute or so each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.regression.repository import repository  # noqa: E402

KEPT = "kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)"
HEAD = 'import torch\n\nAGGVERIFY = {{"mode": "{mode}", "engine": "{engine}"}}\n\n\n'


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a right reducer, and what a pull request made of it."""

    told: str
    mode: str
    engine: str
    body: str
    right: str
    wrong: str

    @property
    def source(self) -> str:
        head = HEAD.format(mode=self.mode, engine=self.engine)
        return f"{head}def reduce(losses, batch):\n    {KEPT}\n{self.body}"


PROMPTS = """\
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    means = (p.sum() / max(n, 1) for p, n in zip(pieces, batch.group_tokens, strict=True))
    return sum(means) / batch.num_groups
"""
CHANGES = {
    "slime": Change(
        "divides the sum over prompts by the number of rollouts (slime #2090)",
        "prompt_mean", "sum", PROMPTS, "/ batch.num_groups", "/ batch.num_rollouts",
    ),
    "miles": Change(
        "counts a fully masked rollout as one token (miles #2796, slime since #365)",
        "token_mean", "sum", "    return kept.sum() / max(batch.num_tokens, 1)\n",
        "max(batch.num_tokens, 1)", "sum(max(n, 1) for n in batch.step_rollout_tokens)",
    ),
    "skyrl": Change(
        "applies the factor for context parallelism twice (SkyRL #1420)",
        "token_mean", "mean",
        "    return kept.sum() / max(batch.num_tokens, 1) * (batch.dp_size * batch.cp_size)\n",
        "batch.dp_size * batch.cp_size", "batch.dp_size * batch.cp_size**2",
    ),
    "verl": Change(
        "takes the mean of every micro-batch, and the mean of these (verl #5625)",
        "token_mean", "accumulated-mean",
        "    ranks = batch.dp_size * batch.cp_size * batch.num_microbatches\n"
        "    return kept.sum() / max(batch.num_tokens, 1) * ranks\n",
        "kept.sum() / max(batch.num_tokens, 1) * ranks",
        "kept.sum() / max(sum(int(m.sum()) for m in batch.loss_masks), 1) * batch.cp_size",
    ),
}  # fmt: skip


def told(name: str, folder: Path, written: str = "md") -> str:
    """What the branch's pull request is told, in that format."""
    change, file = CHANGES[name], "loss/reduce.py"
    assert change.right in change.source
    made = repository(folder / name, {file: change.source})
    made.branch(name, {file: change.source.replace(change.right, change.wrong)})
    command = ["compare", "--revisions", "main", name, file, "--profile", "quick"]
    command += ["--format", written]
    done = subprocess.run(
        [sys.executable, "-m", "aggverify", *command],
        cwd=made.path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 1:
        sys.exit(f"{name}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(CHANGES):
            print(f"## {name}: {CHANGES[name].told}\n", flush=True)
            print(told(name, Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
