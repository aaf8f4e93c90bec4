"""``megatron.core.mpu`` for candidates that read their CP rank from it.

Installed only inside template and rank processes. Where Megatron is installed, its own module gets
this rank's groups; where it is not, a module with the functions reducers use stands in.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(slots=True)
class _Place:
    """The place of this rank in the grid, shared with the functions below."""

    dp_rank: int = 0
    dp_size: int = 1
    cp_rank: int = 0
    cp_size: int = 1
    dp_group: Any = None
    cp_group: Any = None


_place = _Place()


def install() -> None:
    """Make ``import megatron.core.mpu`` work if Megatron is not installed."""
    if _installed():
        return
    mpu = ModuleType("megatron.core.parallel_state")
    functions = {
        "get_context_parallel_rank": lambda: _place.cp_rank,
        "get_context_parallel_world_size": lambda: _place.cp_size,
        "get_context_parallel_group": _context_parallel_group,
        "get_data_parallel_rank": _data_parallel_rank,
        "get_data_parallel_world_size": _data_parallel_size,
        "get_data_parallel_group": _data_parallel_group,
        "get_tensor_model_parallel_rank": lambda: 0,
        "get_tensor_model_parallel_world_size": lambda: 1,
        "get_pipeline_model_parallel_rank": lambda: 0,
        "get_pipeline_model_parallel_world_size": lambda: 1,
        "is_pipeline_last_stage": lambda *args, **kwargs: True,
        "is_initialized": lambda: True,
        "model_parallel_is_initialized": lambda: True,
    }
    for name, function in functions.items():
        setattr(mpu, name, function)
    megatron, core = ModuleType("megatron"), ModuleType("megatron.core")
    megatron.__path__, core.__path__ = [], []
    megatron.core = core  # type: ignore[attr-defined]
    core.mpu = core.parallel_state = mpu  # type: ignore[attr-defined]
    sys.modules.update(
        {
            "megatron": megatron,
            "megatron.core": core,
            "megatron.core.mpu": mpu,
            "megatron.core.parallel_state": mpu,
        }
    )


def place(
    dp_rank: int, dp_size: int, cp_rank: int, cp_size: int, dp_group: Any, cp_group: Any
) -> None:
    """Set this rank's place in ``megatron.core.mpu`` for the next case."""
    _place.dp_rank, _place.dp_size = dp_rank, dp_size
    _place.cp_rank, _place.cp_size = cp_rank, cp_size
    _place.dp_group, _place.cp_group = dp_group, cp_group
    real: Any = sys.modules.get("megatron.core.parallel_state")
    if real is not None and hasattr(real, "_CONTEXT_PARALLEL_GROUP"):
        real._CONTEXT_PARALLEL_GROUP = cp_group
        real._DATA_PARALLEL_GROUP = dp_group


def _installed() -> bool:
    if "megatron.core" in sys.modules:
        return True
    try:
        return importlib.util.find_spec("megatron.core") is not None
    except ModuleNotFoundError:
        return False


def _context_parallel_group(check_initialized: bool = True) -> Any:
    return _place.cp_group


def _data_parallel_rank(with_context_parallel: bool = False, **_: Any) -> int:
    if with_context_parallel:
        return _place.dp_rank * _place.cp_size + _place.cp_rank
    return _place.dp_rank


def _data_parallel_size(with_context_parallel: bool = False, **_: Any) -> int:
    return _place.dp_size * (_place.cp_size if with_context_parallel else 1)


def _data_parallel_group(with_context_parallel: bool = False, **_: Any) -> Any:
    return None if with_context_parallel else _place.dp_group
