"""Every code of the tool's own, with its traits. Data: one entry a code."""

from __future__ import annotations

from aggverify.codes.base import Code, Diagnosed, Effect, Symptom

CATALOGUE: tuple[Code, ...] = (
    Code("AGV101", "Weights are not the mode's"),
    Code(
        "AGV102",
        "Reported loss is not the scalar whose gradient is taken",
        "medium",
        consequence="leaves training alone, but what it reports is not the objective",
        diagnosed=Diagnosed.VALUE,
    ),
    Code("AGV103", "Weights are not finite", diagnosed=Diagnosed.NOT_FINITE),
    Code(
        "AGV104",
        "Reported loss is not finite, the weights are",
        consequence="makes the reported loss NaN or infinite",
        diagnosed=Diagnosed.NOT_FINITE,
    ),
    Code(
        "AGV111",
        "Not finite when something is fully masked",
        diagnosed=Diagnosed.NOT_FINITE,
    ),
    Code("AGV112", "Wrong weights when something is fully masked"),
    Code(
        "AGV121",
        "Values behind the mask reach the loss",
        diagnosed=Diagnosed.BEHIND_THE_MASK,
    ),
    Code(
        "AGV122",
        "Values behind the mask reach the gradient",
        diagnosed=Diagnosed.BEHIND_THE_MASK,
    ),
    Code(
        "AGV123",
        "NaN or infinity behind the mask reaches the loss",
        effect=Effect.HAZARD,
        promise="poison",
        consequence="makes the loss NaN wherever a value behind the mask is not finite",
        diagnosed=Diagnosed.BEHIND_THE_MASK,
    ),
    Code(
        "AGV124",
        "NaN or infinity behind the mask reaches the gradient",
        effect=Effect.HAZARD,
        promise="poison",
        consequence="makes gradients NaN wherever a value behind the mask is not finite",
        diagnosed=Diagnosed.BEHIND_THE_MASK,
    ),
    Code(
        "AGV125",
        "Refuses what is claimed",
        consequence="refuses training steps that it is claimed to take",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV126",
        "A scaled loss does not scale its gradient",
        consequence="trains with other gradients wherever the loss is scaled before backward",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV127",
        "Hides an infinite loss that is not masked",
        effect=Effect.HAZARD,
        consequence="goes on training where a loss is infinite",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV128",
        "Another loss where no gradient is wanted",
        "medium",
        consequence="reports another loss in validation than in training",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV129",
        "Autocast changes the weights",
        consequence="trains with other gradients under autocast",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV131",
        "Weights depend on the losses: the reducer is not linear",
        symptom=Symptom.NOT_LINEAR,
        diagnosed=Diagnosed.SYMPTOM,
        varies_losses=True,
    ),
    Code(
        "AGV132",
        "A constant is added to the loss",
        "medium",
        symptom=Symptom.CONSTANT_ADDED,
        diagnosed=Diagnosed.SYMPTOM,
        varies_losses=True,
    ),
    Code(
        "AGV133",
        "Scaled losses do not scale the loss",
        symptom=Symptom.NOT_LINEAR,
        diagnosed=Diagnosed.SYMPTOM,
        varies_losses=True,
    ),
    Code("AGV141", "Padding changes the weights"),
    Code("AGV142", "Masked or rejected tokens change the weights of others"),
    Code("AGV201", "Result depends on context-parallel size", if_nonlinear="AGV211"),
    Code("AGV202", "Result depends on the split into micro-batches", splits=True),
    Code("AGV203", "Result depends on data-parallel size", splits=True),
    Code("AGV204", "Result depends on the combination of parallel sizes", splits=True),
    Code("AGV205", "Result depends on the order of samples, ids, micro-batches or ranks"),
    Code(
        "AGV206",
        "A split prompt group changes the weights without a word",
        splits=True,
        field="prompt groups",
    ),
    Code(
        "AGV207",
        "An auxiliary term depends on the layout",
        symptom=Symptom.AUXILIARY_TERM,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV208",
        "A partial accumulation window changes the weights",
        symptom=Symptom.PARTIAL_WINDOW,
        diagnosed=Diagnosed.SYMPTOM,
        unsteady=True,
    ),
    Code(
        "AGV211",
        "A non-linear objective depends on context-parallel size",
        symptom=Symptom.STATISTIC_PER_SHARD,
    ),
    Code(
        "AGV212",
        "Selection by value depends on the split",
        symptom=Symptom.SELECTION,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code("AGV301", "Counts or accumulates in too low a precision", about_rounding=True),
    Code("AGV302", "Rounds more than the bound allows", "warning", Effect.WARNING),
    Code(
        "AGV401",
        "Raises an exception",
        consequence="makes training steps raise",
        symptom=Symptom.EXCEPTION,
        failure="exception",
        ends_the_run=True,
    ),
    Code(
        "AGV402",
        "Ranks wait for each other forever",
        consequence="makes training hang",
        symptom=Symptom.BLOCKED,
        failure="blocked",
        ends_the_run=True,
        costs_a_world=True,
    ),
    Code(
        "AGV403",
        "A rank died",
        consequence="kills a rank",
        failure="died",
        ends_the_run=True,
        costs_a_world=True,
    ),
    Code(
        "AGV404",
        "Ranks issue different collectives",
        consequence="makes training hang or mixes up results",
        symptom=Symptom.BLOCKED,
        failure="diverged",
        costs_a_world=True,
        spoils=("collectives",),
    ),
    Code(
        "AGV405",
        "Ranks disagree on the result",
        symptom=Symptom.RANKS_DISAGREE,
        failure="disagree",
    ),
    Code(
        "AGV406",
        "A rank never comes back",
        consequence="makes training hang",
        failure="runaway",
        ends_the_run=True,
        costs_a_world=True,
    ),
    Code(
        "AGV407",
        "The same step twice gives different results",
        symptom=Symptom.NOT_REPEATABLE,
        diagnosed=Diagnosed.SYMPTOM,
        unsteady=True,
    ),
    Code(
        "AGV408",
        "Result depends on the steps before",
        symptom=Symptom.STATE_KEPT,
        diagnosed=Diagnosed.SYMPTOM,
        unsteady=True,
    ),
    Code(
        "AGV409",
        "Compiled, it gives something else",
        consequence="gives other gradients once compiled",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV411",
        "Does not wait for an asynchronous collective",
        consequence="computes with what has not arrived yet",
        diagnosed=Diagnosed.SYMPTOM,
        unsteady=True,
    ),
    Code(
        "AGV501",
        "Returns something no trainer can use",
        symptom=Symptom.UNUSABLE,
        failure="breach",
        ends_the_run=True,
    ),
    Code(
        "AGV502",
        "Changes its arguments in place",
        "medium",
        symptom=Symptom.ARGUMENTS_CHANGED,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV503",
        "Switching the mode changes nothing",
        symptom=Symptom.MODE_IGNORED,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV504",
        "Accepts arguments that cannot be right",
        "medium",
        symptom=Symptom.MISUSE_ACCEPTED,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV511",
        "Logged loss is not the scalar whose gradient is taken",
        "medium",
        consequence="leaves training alone, but what it logs is not the objective",
        symptom=Symptom.LOGGED_LOSS,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV512",
        "Logs of ranks or micro-batches cannot be merged",
        "medium",
        consequence="leaves training alone, but its logs cannot be merged",
        symptom=Symptom.LOGS_DIFFER,
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code(
        "AGV513",
        "A logged number depends on the layout",
        "medium",
        consequence="leaves training alone, but logs another number in another layout",
        diagnosed=Diagnosed.SYMPTOM,
    ),
    Code("AGV521", "Two paths give different weights on the same step"),
    *(
        Code(code, title, "warning", Effect.WARNING, of_absence=True)
        for code, title in (
            ("AGVW01", "Masks were never ragged"),
            ("AGVW02", "No prompt group was ever split"),
            ("AGVW03", "Nothing was ever fully masked"),
            ("AGVW07", "Another mode would have passed as well"),
            ("AGVW09", "No parallel layout was run"),
        )
    ),
    *(
        Code(code, title, "warning", Effect.WARNING, of_lines=True)
        for code, title in (
            ("AGVW17", "Lines of the reducer never ran"),
            ("AGVW18", "Lines of the reducer never ran on several ranks"),
        )
    ),
    *(
        Code(code, title, "warning", Effect.WARNING)
        for code, title in (
            ("AGVW08", "The time ran out"),
            ("AGVW10", "No mode to compare with"),
            ("AGVW11", "Leaves global state changed"),
            ("AGVW12", "Ranks were ended from outside"),
            ("AGVW19", "There was no room for the largest worlds"),
        )
    ),
    *(
        Code(code, title, "warning", Effect.WARNING, quiet=True)
        for code, title in (
            ("AGVW04", "NCCL was not used"),
            ("AGVW05", "More ranks than cores"),
            ("AGVW06", "Not everything is claimed"),
        )
    ),
)
