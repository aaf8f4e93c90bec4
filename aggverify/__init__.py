"""aggverify: numerical verification of loss aggregation under real torch.distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggverify.conventions.native import MicroBatch as MicroBatch

__version__ = "0.1.0"
__all__ = ["MicroBatch", "__version__"]


def __getattr__(name: str) -> Any:
    """Import on first use: ``aggverify --help`` should not wait for it."""
    if name == "MicroBatch":
        from aggverify.conventions.native import MicroBatch

        return MicroBatch
    raise AttributeError(f"module 'aggverify' has no attribute {name!r}")
