"""Runs an exported case in plain torch: prints each token's weight, and the expected one.

``python run.py`` exits with 1 where a weight is wrong, and with 0 where none is.
``case.json`` has what each rank's calls are given. A tensor that depends on the losses has slopes
(element, token, derivative): the weight of a token is the gradient of its loss.
"""

import builtins
import faulthandler
import inspect
import json
import math
import sys
import tempfile
from datetime import timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

import megatron_mpu
import torch
import torch.distributed as dist
from padded_rows import PaddedRows

CASE = json.loads(Path(__file__).with_name("case.json").read_text("utf-8"))
GROUPS = {}
Attributes = type("Attributes", (PaddedRows, SimpleNamespace), {})  # as a micro-batch has them
built = cache(lambda kind: kind())
sys.path.append(str(Path.cwd()))


def function(kind, name):  # of a class its method, of an object that is made here
    owner, _, last = name.rpartition(".")
    holder = resolve_name(f"{CASE[kind]}:{owner}")
    made = CASE["bound"] and isinstance(holder, type)
    plain = made and inspect.isfunction(inspect.getattr_static(holder, last))
    return getattr(built(holder) if plain else holder, last)


def tensor(data, theta):
    made = torch.tensor(value(data["values"], None, None), dtype=getattr(torch, data["dtype"]))
    if "slopes" in data:
        slopes = torch.tensor(value(data["slopes"], None, None), dtype=torch.float64).reshape(-1, 3)
        element, token = slopes[:, :2].T.long()
        shares = slopes[:, 2] * theta[token]
        made = made + theta.new_zeros(len(made)).index_add(0, element, shares).to(made)
    return made.reshape(data["shape"])


def value(data, theta, results):  # an object of one key names its kind
    if isinstance(data, list):
        return [value(each, theta, results) for each in data]
    if not isinstance(data, dict):
        return data
    [(kind, own)] = data.items()
    if kind == "object":
        return Attributes(**{name: value(x, theta, results) for name, x in own.items()})
    if kind == "builtin":  # a tuple, a dict or a slice
        name, *given = value(own, theta, results)
        return getattr(builtins, name)(*given)
    if kind == "tensor":
        return tensor(own, theta)
    known = {"result": results.__getitem__, "group": GROUPS.get, "named": resolve_name}
    return known[kind](own) if kind in known else function(kind, own)


def weights(step, rank):
    theta = torch.zeros(step["tokens"], dtype=torch.float64, requires_grad=True)
    results, counted, total = [], 0, 0.0
    for cell in step["ranks"][rank]:
        for call in cell["calls"]:
            called, given = value([call["call"], call["args"]], theta, results)
            named = {name: value(x, theta, results) for name, x in call["kwargs"].items()}
            results.append(called(*given, **named))
        out = value(cell["loss"], theta, results)
        loss, *more = out if isinstance(out, tuple) else (out,)
        counted += next((int(n) for n in more if hasattr(n, "__int__")), cell["tokens"])
        loss.backward()
        total += loss.item()
    grad = torch.zeros_like(theta) if theta.grad is None else theta.grad
    row = torch.cat([grad, grad.new_tensor([total, counted])])
    dist.all_reduce(row)
    return row[:-1] * float(Fraction(CASE["scale"])) / (max(row[-1], 1) if CASE["per_token"] else 1)


def run(rank, dp, cp, folder, found):
    faulthandler.dump_traceback_later(120, exit=True)
    store, time = f"file://{folder}/store", timedelta(seconds=60)
    dist.init_process_group("gloo", store, time, dp * cp, rank)
    grid = torch.arange(dp * cp).reshape(dp, cp)
    for name, ranks in (("dp", grid.T), ("cp", grid)):
        GROUPS[name], _ = dist.new_subgroups_by_enumeration(ranks.tolist())
    GROUPS["world"] = dist.group.WORLD
    megatron_mpu.install()
    megatron_mpu.place(rank // cp, dp, rank % cp, cp, GROUPS["dp"], GROUPS["cp"])
    for step in CASE["steps"]:
        last = weights(step, rank)
    found.copy_(last.detach())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    dp, cp, expected = CASE["dp_size"], CASE["cp_size"], [*map(Fraction, CASE["expected"])]
    found = torch.zeros(len(expected) + 1, dtype=torch.float64).share_memory_()
    method = "fork" if sys.platform == "linux" else "spawn"
    with tempfile.TemporaryDirectory() as folder:
        given = dp, cp, folder, found
        torch.multiprocessing.start_processes(run, given, dp * cp, start_method=method)
    *weighed, total = found.tolist()
    wrong = CASE["finite"] and not math.isfinite(total)
    print(CASE["title"], "\nthe loss is not finite   <- wrong" * wrong, sep="")
    for (i, t), w, e, most in zip(CASE["tokens"], weighed, expected, CASE["allowed"]):
        off = not abs(w - float(e)) <= most
        factor = f", {w / float(e):.6g} times that" if e and off else ""
        print(f"sample {i} token {t}: weight {w}, expected {e}{factor}{'   <- wrong' * off}")
        wrong |= off
    sys.exit(wrong)
