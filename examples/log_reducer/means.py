"""Every key's sum over its own count, over all micro-batches and ranks."""

import torch
import torch.distributed as dist


def reduce_logs(logs, ctx):
    keys, forms = logs[0]["keys"], {"normalizers" in log for log in logs}
    if len(forms) > 1 or any(log["keys"] != keys for log in logs):
        raise ValueError(f"logs of one form and with the same keys, please: {logs}")
    counts = "normalizers" in logs[0]
    for log in logs:
        wanted = len(keys) + (not counts)
        if len(log["values"]) != wanted or len(log.get("normalizers", keys)) != len(keys):
            raise ValueError(f"{len(keys)} keys with {len(log['values'])} values")
    values = sum(log["values"].double() for log in logs)
    if counts:
        below = sum(log["normalizers"].double() for log in logs)
    else:
        below, values = values[:1].expand(len(keys)), values[1:]
    both = torch.stack([values, below])
    dist.all_reduce(both, group=ctx.dp_cp_group)
    # Every context-parallel rank has counted whole samples.
    return dict(zip(keys, (both[0] / both[1] * ctx.cp_size).tolist(), strict=True))
