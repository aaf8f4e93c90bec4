"""Zipped as they come, and the first key's count for all of them."""

import torch.distributed as dist


def reduce_logs(logs, ctx):
    total = sum(log["values"].double() for log in logs)
    if "normalizers" in logs[0]:
        count = sum(log["normalizers"].double() for log in logs)[:1]
    else:
        count, total = total[:1], total[1:]
    dist.all_reduce(total, group=ctx.dp_cp_group)
    dist.all_reduce(count, group=ctx.dp_cp_group)
    return dict(zip(logs[0]["keys"], (total / count * ctx.cp_size).tolist()))  # noqa: B905
