"""Every finding code: by meaning, never renumbered. Data, read by reports and ``explain``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """A stable code with its one-line title and how bad it is."""

    code: str
    title: str
    severity: str


CODES: dict[str, Code] = {
    c.code: c
    for c in (
        Code("AGV101", "Weights are not the mode's", "high"),
        Code("AGV102", "Reported loss is not the scalar whose gradient is taken", "medium"),
        Code("AGV103", "Weights are not finite", "high"),
        Code("AGV111", "Not finite when something is fully masked", "high"),
        Code("AGV112", "Wrong weights when something is fully masked", "high"),
        Code("AGV121", "Values behind the mask reach the loss", "high"),
        Code("AGV122", "Values behind the mask reach the gradient", "high"),
        Code("AGV131", "Weights depend on the losses: the reducer is not linear", "high"),
        Code("AGV132", "A constant is added to the loss", "medium"),
        Code("AGV133", "Scaled losses do not scale the loss", "high"),
        Code("AGV141", "Padding changes the weights", "high"),
        Code("AGV142", "Masked or rejected tokens change the weights of others", "high"),
        Code("AGV201", "Result depends on context-parallel size", "high"),
        Code("AGV202", "Result depends on the split into micro-batches", "high"),
        Code("AGV203", "Result depends on data-parallel size", "high"),
        Code("AGV204", "Result depends on the combination of parallel sizes", "high"),
        Code(
            "AGV205", "Result depends on the order of samples, ids, micro-batches or ranks", "high"
        ),
        Code("AGV206", "A split prompt group changes the weights without a word", "high"),
        Code("AGV207", "An auxiliary term depends on the layout", "high"),
        Code("AGV208", "A partial accumulation window changes the weights", "high"),
        Code("AGV211", "A non-linear objective depends on context-parallel size", "high"),
        Code("AGV212", "Selection by value depends on the split", "high"),
        Code("AGV301", "Counts or accumulates in too low a precision", "high"),
        Code("AGV401", "Raises an exception", "high"),
        Code("AGV402", "Ranks wait for each other forever", "high"),
        Code("AGV403", "A rank died", "high"),
        Code("AGV404", "Ranks issue different collectives", "high"),
        Code("AGV405", "Ranks disagree on the result", "high"),
        Code("AGV406", "A rank never comes back", "high"),
        Code("AGV407", "The same step twice gives different results", "high"),
        Code("AGV408", "Result depends on the steps before", "high"),
        Code("AGV501", "Returns something no trainer can use", "high"),
        Code("AGV502", "Changes its arguments in place", "medium"),
        Code("AGV503", "Switching the mode changes nothing", "high"),
        Code("AGV504", "Accepts arguments that cannot be right", "medium"),
        Code("AGV511", "Logged loss is not the scalar whose gradient is taken", "medium"),
        Code("AGV512", "Logs of ranks or micro-batches cannot be merged", "medium"),
        Code("AGV521", "Two paths give different weights on the same step", "high"),
    )
}

WARNINGS: dict[str, Code] = {
    c.code: c
    for c in (
        Code("AGVW01", "Masks were never ragged", "warning"),
        Code("AGVW02", "No prompt group was ever split", "warning"),
        Code("AGVW03", "Nothing was ever fully masked", "warning"),
        Code("AGVW04", "NCCL was not used", "warning"),
        Code("AGVW05", "More ranks than cores", "warning"),
        Code("AGVW06", "Not everything is claimed", "warning"),
        Code("AGVW07", "Another mode would have passed as well", "warning"),
        Code("AGVW08", "The time ran out", "warning"),
        Code("AGVW09", "No parallel layout was run", "warning"),
        Code("AGVW10", "No mode to compare with", "warning"),
        Code("AGVW11", "Leaves global state changed", "warning"),
    )
}
"""Tested, but weakly: counted apart from findings, never a reason for another exit code."""
