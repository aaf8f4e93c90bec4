"""Runs an exported case with torch alone: prints each token's weight, and the expected one.

``python run.py [REDUCER.py]`` exits with 1 where a weight is wrong, and with 0 where none is.
``case.json`` has what each rank's calls are given. A tensor that depends on the losses has slopes
(element, token, derivative): the weight of a token is the gradient of its loss.
"""

import importlib.util
import inspect
import json
import math
import operator
import signal
import sys
import tempfile
from datetime import timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
import torch.distributed as dist

HERE = Path(__file__).resolve().parent
CASE = json.loads((HERE / "case.json").read_text("utf-8"))
GROUPS = {}


class Attributes(SimpleNamespace):  # an object of attributes, as a micro-batch is one
    def padded(self, values, *, side="right", width="micro-batch"):
        own = [*map(len, self.local_masks)]
        rows = list(values.split(own) if torch.is_tensor(values) else values)
        longest = self.step_width if width == "step" else max(map(len, rows), default=0)
        left = [longest - len(row) for row in rows]
        by = [(0, n) if side == "right" else (n, 0) for n in left]
        return torch.stack([*map(torch.nn.functional.pad, rows, by)])

    def rows(self, losses, **how):
        return self.padded(losses, **how), self.padded(self.local_masks, **how)


@cache
def module(kind):
    if name := CASE[kind].get("module"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    own = sys.argv[1:] if kind == "reducer" else ()
    path = Path(own[0]).resolve() if own else HERE / CASE[kind]["file"]
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"exported_{kind}", path)
    sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@cache
def function(kind, name):  # of a class its method, of an object that is made here
    *owner, last = name.rsplit(".", 1)
    holder = operator.attrgetter(*owner)(module(kind)) if owner else module(kind)
    made = CASE["bound"] and isinstance(holder, type)
    plain = made and inspect.isfunction(inspect.getattr_static(holder, last))
    return getattr(holder() if plain else holder, last)


def tensor(data, theta):
    numbers = [float(x) if isinstance(x, str) else x for x in data["values"]]
    made = torch.tensor(numbers, dtype=getattr(torch, data["dtype"]))
    if "slopes" in data:
        rows = [[*map(float, row)] for row in data["slopes"]]
        element, token, slope = torch.tensor(rows, dtype=torch.float64).reshape(-1, 3).T
        sums = torch.zeros(len(made), dtype=torch.float64)
        made = made + sums.index_add(0, element.long(), slope * theta[token.long()]).to(made.dtype)
    return made.reshape(data["shape"])


def value(data, theta, results):  # what the data stands for: lists, and objects of one key
    if isinstance(data, list):
        return [value(x, theta, results) for x in data]
    if not isinstance(data, dict):
        return data
    [(kind, inner)] = data.items()
    if kind in ("tuple", "dict", "slice"):
        inner = value(inner, theta, results)
    elif kind == "object":
        inner = {name: value(x, theta, results) for name, x in inner.items()}
    made = {"tuple": tuple, "dict": dict, "float": float, "group": GROUPS.get}
    made |= {"slice": lambda ends: slice(*ends), "object": lambda own: Attributes(**own)}
    made |= {"tensor": lambda own: tensor(own, theta), "result": results.__getitem__}
    made |= {"dtype": lambda name: getattr(torch, name)}
    made |= {"operator": lambda name: getattr(operator, name)}
    made |= {name: lambda own: function(kind, own) for name in ("reducer", "adapter")}
    return made[kind](inner)


def weights(step, rank):
    theta = torch.zeros(step["tokens"], dtype=torch.float64, requires_grad=True)
    results, counted, total = [], 0, 0.0
    for cell in step["ranks"][rank]:
        for call in cell["calls"]:
            named = {name: value(x, theta, results) for name, x in call["kwargs"].items()}
            given = value(call["args"], theta, results)
            results.append(value(call["call"], theta, results)(*given, **named))
        out = value(cell["loss"], theta, results)
        loss, *more = out if isinstance(out, tuple) else (out,)
        counted += next((int(n) for n in more if hasattr(n, "__int__")), cell["tokens"])
        loss.backward()
        total += loss.item()
    grad = torch.zeros_like(theta) if theta.grad is None else theta.grad
    row = torch.cat([grad, grad.new_tensor([total, counted])])
    dist.all_reduce(row)
    return row[:-1] * float(Fraction(CASE["scale"])) / (max(row[-1], 1) if CASE["per_token"] else 1)


def stand_in():  # megatron.core.mpu, for reducers that ask it for their rank
    mpu = ModuleType("megatron.core.mpu")
    for kind, name in (("data", "dp"), ("context", "cp")):
        group, start = GROUPS[name], f"get_{kind}_parallel_"
        own = {"group": group, "rank": group.rank(), "world_size": group.size()}
        for asked, answer in own.items():
            setattr(mpu, start + asked, lambda *_, answer=answer, **__: answer)
    mpu.core = mpu.mpu = mpu.parallel_state = mpu
    names = ("megatron", "megatron.core", "megatron.core.mpu", "megatron.core.parallel_state")
    sys.modules.update(dict.fromkeys(names, mpu))


def expired(*_):
    raise TimeoutError("not done within 120 s")


def run(rank, world, folder, found):
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, expired)
        signal.alarm(120)
    store, time = f"file://{folder}/store", timedelta(seconds=60)
    dist.init_process_group("gloo", store, timeout=time, world_size=world, rank=rank)
    grid = torch.arange(world).reshape(CASE["dp_size"], CASE["cp_size"])
    for name, ranks in (("dp", grid.T), ("cp", grid)):
        GROUPS[name] = dist.new_subgroups_by_enumeration(ranks.tolist())[0]
    GROUPS["world"] = dist.group.WORLD
    stand_in()
    for step in CASE["steps"]:
        last = weights(step, rank)
    found.copy_(last.detach())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    size, expected = CASE["dp_size"] * CASE["cp_size"], [*map(Fraction, CASE["expected"])]
    found = torch.zeros(len(expected) + 1, dtype=torch.float64).share_memory_()
    with tempfile.TemporaryDirectory() as folder:
        if size == 1:
            run(0, 1, folder, found)
        else:
            how = {"start_method": "fork" if sys.platform == "linux" else "spawn"}
            torch.multiprocessing.start_processes(run, (size, folder, found), size, **how)
    print(CASE["title"])
    *weighed, total = found.tolist()
    wrong = CASE["finite"] and not math.isfinite(total)
    print("the loss is not finite   <- wrong\n" * wrong, end="")
    for (i, t), w, e, most in zip(CASE["tokens"], weighed, expected, CASE["allowed"]):
        off = not abs(w - float(e)) <= most
        factor = f", {w / float(e):.6g} times that" if e and off else ""
        print(f"sample {i} token {t}: weight {w}, expected {e}{factor}{'   <- wrong' * off}")
        wrong |= off
    sys.exit(wrong)
