"""Probes: nothing without a folder to record in, every token's own weight with one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aggverify
from aggverify.audit.records import RankFile, Record, read_folder
from aggverify.audit.steps import merged

HERE = Path(__file__).parent


def test_without_a_folder_a_probe_is_nothing_and_imports_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import aggverify; given = object()\n"
        "assert aggverify.probe(given, 1, sample_ids=2) is given\n"
        "assert aggverify.probe_log_probs(given, 1) is given\n"
        "print(sorted(m for m in set(sys.modules) - before if m.split('.')[0] in "
        "('aggverify', 'torch', 'numpy')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "['aggverify', 'aggverify.probes']\n"
    assert aggverify.probe("losses") == "losses"  # type: ignore[comparison-overlap]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, ...]:
    """Of the process with all oddities."""
    folder = tmp_path_factory.mktemp("probe")
    env = {**os.environ, "AGGVERIFY_PROBE": str(folder), "AGGVERIFY_PROBE_STEPS": "first 20"}
    subprocess.run([sys.executable, HERE / "oddities.py"], env=env, check=True)
    [file] = read_folder(folder)
    assert not file.cut
    return file.records


THIRD = [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0]]


def test_each_odd_step_leaves_one_record_with_each_tokens_weight(
    records: tuple[Record, ...],
) -> None:
    told = [(r.head["step"], r.head["micro_batch"], r.head.get("unused", False)) for r in records]
    once = [(n, 0, False) for n in range(10)]
    # Step 5 is told after each of its two passes; step 6 has one that was never gone through.
    assert told == [*once[:6], (5, 1, False), once[6], (6, 1, True), *once[7:]]
    for record in records:
        step, weights = record.head["step"], record.arrays["weights"]
        if record.head.get("unused"):
            assert not weights.any()
        elif step == 7:
            assert weights.tolist() == [THIRD[0], [0, 0, 0]]
            assert record.arrays["known"].tolist() == [[1, 1, 1], [0, 0, 0]]
        elif step == 5:
            assert np.allclose(weights, np.array(THIRD) / 2, rtol=1e-15)
        else:
            assert np.allclose(weights, THIRD, rtol=1e-15), step
        assert record.arrays["mask"].tolist() == [[1, 1, 0], [1, 0, 0]]
    added = merged([RankFile(HERE, records, False)]).steps[5]
    assert np.allclose(added.weights, [1 / 3] * 3, rtol=1e-15)
    assert records[0].arrays["group_ids"].tolist() == [7, 7]
    assert len(set(records[0].arrays["sample_ids"].tolist())) == 2
    assert [r.head["name"] for r in records[-2:]] == ["loss", "kl"]
