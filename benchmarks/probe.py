"""What a probe costs on a real step: ``python benchmarks/probe.py [DEVICE [SAMPLES LENGTH]]``.

A 25 M parameter transformer under DDP on two ranks (one on a GPU), every step recorded; steps with
and without a probe alternate; the median of the differences is printed. Also the time of a call
that records nothing, and bytes a token.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

VOCABULARY, WIDTH, LAYERS = 8192, 384, 10
SHAPES = {"cpu": (4, 128), "cuda": (16, 1024)}
"""Samples and tokens of a micro-batch: as many as keep the device busy."""
STEPS = 32


def model() -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, batch_first=True, dropout=0.0)
    body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), body, nn.Linear(WIDTH, VOCABULARY))


def rank(device: str, samples: int, length: int) -> None:
    """One rank: seconds of each step, with a probe and without."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import aggverify

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = model().to(device)
    parameters = sum(p.numel() for p in net.parameters())
    trained = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    tokens = torch.randint(0, VOCABULARY, (samples, length), device=device)
    mask = torch.ones_like(tokens)
    took: dict[bool, list[float]] = {True: [], False: []}
    for step in range(2 * STEPS):
        probed = step % 2 == 0
        if device == "cuda":
            torch.cuda.synchronize()
        began, spent = time.perf_counter(), time.process_time()
        logits = trained(tokens).flatten(0, 1)
        losses = torch.nn.functional.cross_entropy(logits, tokens.flatten(), reduction="none")
        losses = losses.view_as(tokens)
        if probed:
            losses = aggverify.probe(losses, mask, sample_ids=range(samples))
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        clock = time.perf_counter() - began if device == "cuda" else time.process_time() - spent
        took[probed].append(clock)
    if dist.get_rank() == 0:
        pairs = list(zip(took[True], took[False], strict=True))[2:]
        without = statistics.median(b for _, b in pairs)
        more = sorted(a - b for a, b in pairs)
        quarters = [more[len(more) * n // 4] for n in (1, 2, 3)]
        print(json.dumps({"parameters": parameters, "without": without, "more": quarters}))


def main(device: str, samples: int, length: int) -> None:
    import aggverify

    given = object()
    call = min(timeit.repeat(lambda: aggverify.probe(given, given), number=100_000, repeat=5)) / 1e5
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "AGGVERIFY_PROBE": folder}
        env["AGGVERIFY_PROBE_STEPS"] = "every 1st"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", "1" if device == "cuda" else "2", __file__]
        command += [device, str(samples), str(length), "rank"]
        ran = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        told = json.loads(ran.stdout.strip().splitlines()[-1])
        file = min(Path(folder).glob("*.agvr"))
        size = file.stat().st_size / (STEPS * samples * length)
    low, share, high = (more / told["without"] for more in told["more"])
    kind = "seconds" if device == "cuda" else "processor seconds of rank 0"
    print(f"{told['parameters']:,} parameters, {samples * length} tokens a micro-batch, {device}")
    print(f"a step: {told['without']:.4f} {kind}; with a probe that records {share:+.2%} of it")
    print(f"(half of all pairs of steps: {low:+.2%} to {high:+.2%})")
    print(f"{size:.1f} bytes a token; a call that records nothing {call * 1e9:.0f} ns")


if __name__ == "__main__":
    device, *size = sys.argv[1:4] or ["cpu"]
    samples, length = map(int, size) if size else SHAPES[device]
    (rank if sys.argv[4:] == ["rank"] else main)(device, samples, length)
