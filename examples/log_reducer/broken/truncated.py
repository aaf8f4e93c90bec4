"""Right on right logs; what has no partner is left out, and keys are taken from the first log."""

import torch
import torch.distributed as dist


def reduce_logs(logs, ctx):
    sums = {key: torch.zeros(2, dtype=torch.float64) for key in logs[0]["keys"]}
    for log in logs:
        values = log["values"].tolist()
        counts = log["normalizers"].tolist() if "normalizers" in log else [values.pop(0)] * 9
        for key, value, count in zip(logs[0]["keys"], values, counts):  # noqa: B905
            sums[key] += torch.tensor([value, count], dtype=torch.float64)
    both = torch.stack([*sums.values()])
    dist.all_reduce(both, group=ctx.dp_cp_group)
    means = both[:, 0] / both[:, 1] * ctx.cp_size
    return dict(zip(sums, means.tolist(), strict=True))
