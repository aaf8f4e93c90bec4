"""Faults are found on the default budget and shrunk to the smallest step that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggverify.run.store import StoredCase
from tests.conftest import EXAMPLES, SEEDS, Cli


@pytest.mark.parametrize(
    ("file", "code", "samples", "tokens", "ranks"),
    [
        ("micro_batch_token_mean.py", "AGV202", 2, 3, 1),
        ("micro_batch_token_mean.py", "AGV203", 2, 3, 2),
        ("cp_shard_mean.py", "AGV201", 1, 1, 2),
        ("cp_shard_sample_mean.py", "AGV201", 1, 2, 2),
        ("hardcoded_divisor.py", "AGV101", 1, 1, 1),
        ("bfloat16_count.py", "AGV301", 1, 257, 1),
        ("multiply_by_mask.py", "AGV121", 1, 1, 1),
        ("padded_width.py", "AGV141", 1, 2, 1),
        ("partial_groups.py", "AGV206", 2, 2, 1),
        ("rejected_tokens.py", "AGV142", 1, 2, 1),
        ("cp_shard_geometric_mean.py", "AGV211", 1, 1, 2),
        ("kl_local_count.py", "AGV207", 2, 2, 1),
        ("configured_window.py", "AGV208", 1, 1, 1),
        ("sorted_ids.py", "AGV205", 2, 3, 1),
        ("reported_loss.py", "AGV102", 2, 2, 1),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_smallest_step(
    cli: Cli, tmp_path: Path, file: str, code: str, samples: int, tokens: int, ranks: int, seed: int
) -> None:
    ran = cli("check", EXAMPLES / "broken" / file, "--seed", str(seed), "--profile", "quick")
    assert ran.code == 1, ran
    stored = [
        StoredCase.from_json(json.loads(path.read_text()))
        for path in (tmp_path / ".aggverify" / "cases").glob("*.json")
    ]
    case = next(s.case for s in stored if s.code == code)
    found = (len(case.step.samples), case.step.num_response_tokens, case.layout.world_size)
    assert found == (samples, tokens, ranks)
