"""Bugs of micro-batches, data-parallel ranks and context parallelism."""

from __future__ import annotations

from aggverify.checks.terms import DETACHED, LEFT_OUT, OTHER_COUNT, SHARED_OUT
from aggverify.codes import Symptom
from aggverify.diagnosis.bugs.base import Bug
from aggverify.diagnosis.clues import Claimed, Count, Error, Off, Shape, sign
from aggverify.diagnosis.nonlinear import COUNT, OF_THE_ROWS
from aggverify.diagnosis.terms import TOKENS

_CELL = ("dp rank", "micro-batch")
_ANY = None
_HERE = "dp rank|cp rank|micro-batch"
_GLOBAL = "divide every micro-batch's sum by the step's token count, all-reduced before the split"
_ONCE = "count every unit once for the whole step, before the split, and hand the number down"

BUGS: tuple[Bug, ...] = (
    Bug(
        "packed-row-tokens",
        "sums are divided by the tokens of a packed row (a micro-batch), not of the sequence",
        "ms-swift #9925",
        "take the sequences apart by cu_seqlens, and divide each sum by its own count",
        (sign(COUNT), Shape(Count(TOKENS, "", _CELL), outer=(), sizes=())),
    ),
    Bug(
        "packed-row-as-sequence",
        "the token mean of each packed row, averaged over rows as if a row were one sequence",
        "tunix #1662",
        "take the sequences apart by cu_seqlens before averaging each",
        (
            Shape(Count(TOKENS, "", _CELL), outer=(), sizes=("/dp_size", "/num_microbatches")),
            Claimed(modes=("sample_mean",)),
        ),
    ),
    Bug(
        "mean-over-cells",
        "the mean over micro-batches of each one's own token mean, each rank for itself",
        "verl #5625, SkyRL before #1296 (its token_mean_legacy), transformers #34191",
        _GLOBAL,
        (Shape(Count(TOKENS, "", _CELL), outer=(), sizes=("/dp_size", "/num_microbatches")),),
    ),
    Bug(
        "mean-over-micro-batches",
        "the mean over micro-batches of each one's own token mean",
        "verl #5625, SkyRL before #1296, transformers #34191",
        _GLOBAL,
        (Shape(Count(TOKENS, "", ("micro-batch",)), outer=(), sizes=("/num_microbatches",)),),
    ),
    Bug(
        "weighted-by-samples",
        "each micro-batch's token mean weighted by its number of samples, not of tokens",
        "twinkle #292",
        "weight a token mean by its token count, or divide once by the step's count",
        (
            Shape(
                Count(TOKENS, "", _CELL),
                outer=(Count("rollouts|samples"),),
                upper=Count("rollouts|samples", "", _CELL),
                sizes=(),
            ),
        ),
    ),
    Bug(
        "weighted-by-tokens",
        "each micro-batch's mean over its rows weighted by its number of tokens, not of rows",
        "EasyR1 (loss_avg_mode=seq)",
        "weight a mean over rows by the micro-batch's share of the step's rows",
        (
            Shape(
                Count(TOKENS, "sample|rollout"),
                outer=(Count(TOKENS), Count("rollouts|samples", "", _CELL)),
                upper=Count(TOKENS, "", _CELL),
                sizes=(),
            ),
        ),
    ),
    Bug(
        "means-added-up",
        "each micro-batch's own token mean, added up: nothing divides by the accumulation steps",
        "LLaMA-Factory (use_asft_loss)",
        _GLOBAL,
        (Shape(Count(TOKENS, "", _CELL), outer=(), sizes=("/dp_size",)),),
    ),
    Bug(
        "floor-after-division",
        "the step's token count is floored after its division by the ranks: one token for each",
        "Liger's dapo",
        "floor the count itself: max(count, 1) / world_size",
        (Shape(Count(r"unmasked tokens \(at least one for each rank\)", "", ()), outer=()),),
    ),
    Bug(
        "mean-over-dp-ranks",
        "the mean over data-parallel ranks of each rank's own token mean",
        "prime-rl #2358",
        "all-reduce the token count over the data-parallel group before dividing",
        (Shape(Count(TOKENS, "", _ANY, "dp rank"), outer=(), sizes=("/dp_size",)),),
    ),
    Bug(
        "mean-over-cp-shards",
        "the mean over CP shards of each shard's own token mean",
        "Megatron-LM #7513",
        "take the denominator from the full mask, or all-reduce it over the CP group",
        (Shape(Count(TOKENS, "", _ANY, "cp rank"), outer=(), sizes=("/cp_size",)),),
    ),
    Bug(
        "mean-of-sample-means",
        "the mean over the samples at hand of each one's own token mean at hand",
        "TRL's grpo, SkyRL's critic, ROLL's masked_mean(dim=-1).mean()",
        _ONCE,
        (
            Shape(
                Count(TOKENS, "sample", _ANY),
                outer=(Count("(non-empty )?(samples|rollouts)", "", _ANY, _HERE),),
            ),
        ),
    ),
    Bug(
        "sum-of-cp-shard-means",
        "the sum over CP shards of each shard's own token mean of the sample",
        "Megatron-LM #7513; slime's masked sums before the full-mask denominators",
        "divide every shard's sum by the full mask's count, not by the shard's",
        (Shape(Count(TOKENS, "sample", ("cp rank",)), sizes=()),),
    ),
    Bug(
        "experts-divided-by-fewer-ranks",
        "experts' gradients are not divided by all ranks, though they have the tokens of all",
        "Megatron-LM #5956, DeepSpeed #5259",
        "divide by as many ranks as for all other parameters",
        (sign("experts-large"),),
    ),
    Bug(
        "experts-reduced-elsewhere",
        "experts' gradients are not summed over exactly the ranks that hold copies",
        "expert parameters among those that DDP averages, or among none",
        "sum them over expert_dp_group, once, then divide as for all other parameters",
        (sign("experts-small", "experts-off"),),
    ),
    Bug(
        "divided-at-every-step",
        "gradients are divided again at every accumulation step: earlier micro-batches fade",
        "torchtitan #1732, trlx #220",
        "divide once: each loss before its backward, or the gradients after the last one",
        (sign("decays"),),
    ),
    Bug(
        "summed-again-over-ranks",
        "gradients are summed over ranks after every micro-batch, those of earlier ones once more",
        "an all_reduce of p.grad inside the loop over micro-batches",
        "reduce once, after the last micro-batch, or each one's own gradient before it is added",
        (sign("grows"),),
    ),
    Bug(
        "statistic-over-the-rows-at-hand",
        "a statistic of the values is that of one micro-batch, rank or shard, not of the step",
        "Soup #723 (log-ratios centred over the rows of the batch)",
        "all-reduce the statistic over the step (differentiably), or take it of one sample alone",
        (sign(OF_THE_ROWS),),
    ),
    Bug(
        "statistic-per-shard",
        "a sequence's statistic is taken of each context-parallel shard, not of the whole sequence",
        "GSPO, GMPO under context parallelism; slime #2235",
        "all-reduce the sum over the context-parallel group (differentiably) before exp",
        (sign(Symptom.STATISTIC_PER_SHARD),),
    ),
    Bug(
        "selection-per-micro-batch",
        "tokens are selected by comparison within one micro-batch or rank, not within the step",
        "AReaL #1730",
        "select once for the step before it is split, or all-reduce the threshold",
        (sign(Symptom.SELECTION),),
    ),
    Bug(
        "auxiliary-detached",
        "an auxiliary term is detached, or never added: no gradient of it reaches the model",
        "NeMo Automodel #1412 (its value is in the loss, its gradient never flows)",
        "add the term itself to the loss, and detach only what is logged",
        (sign(Symptom.AUXILIARY_TERM), sign(DETACHED)),
    ),
    Bug(
        "auxiliary-left-out",
        "an auxiliary term is added on some ranks or micro-batches only",
        "a KL term added by the first rank of context parallelism, as if it were the sample's",
        "add every term wherever its tokens are",
        (sign(Symptom.AUXILIARY_TERM), sign(LEFT_OUT)),
    ),
    Bug(
        "auxiliary-local-count",
        "an auxiliary term is divided by a count of what is at hand, not by the step's",
        "NeMo-RL #3791: 32 times too large",
        "give every additive term the normaliser of the objective",
        (sign(Symptom.AUXILIARY_TERM), sign(OTHER_COUNT)),
    ),
    Bug(
        "cp-scaling-missing",
        "the context-parallel size is divided out once too often",
        "slime #990, tmax #9, lightly #1977",
        "scale an auxiliary term as the objective is scaled where losses are gathered",
        (sign(Symptom.AUXILIARY_TERM), sign(SHARED_OUT)),
    ),
    Bug(
        "statistics-over-dp-only",
        "counts all-reduced over data-parallel ranks but not over context-parallel ones",
        "slime #2235",
        "all-reduce statistics over the group that spans DP and CP",
        (Shape(Count(TOKENS, "", ("cp rank", "micro-batch")), outer=(), sizes=()),),
    ),
    Bug(
        "partial-groups",
        "each rank's or micro-batch's part of a prompt group divided by that part's own tokens",
        "miles pull request review (DP striping splits prompt groups)",
        "keep a group together, or divide by the token total of the whole group",
        (Shape(Count(TOKENS, "prompt group", _CELL), outer=(Count("prompt groups"),)),),
    ),
    Bug(
        "partial-rollouts",
        "each rank's or micro-batch's part of a rollout divided by that part's own tokens",
        "miles FSDP",
        "divide every sample of a rollout by the whole rollout's token count",
        (Shape(Count(TOKENS, "rollout", _CELL), outer=(Count("rollouts"),)),),
    ),
    Bug(
        "units-counted-per-cell",
        "local counts of rollouts or prompt groups added up: one that straddles counts repeatedly",
        "slime and miles pull requests on prompt_mean and fan-out",
        _ONCE,
        (Shape(outer=(Count(".*counted once per.*"),), sizes=()),),
    ),
    Bug(
        "mean-over-cells-and-shards",
        "the mean over micro-batches and shards of each one's own token mean",
        "verl #5625 and Megatron-LM #7513 in one",
        _GLOBAL,
        (
            Shape(
                Count(TOKENS, "", ("dp rank", "cp rank", "micro-batch")),
                outer=(),
                sizes=("/dp_size", "/cp_size", "/num_microbatches"),
            ),
        ),
    ),
    Bug(
        "local-count-returned",
        "the per-token path is given this CP rank's count: the gradient is cp_size times too large",
        "slime's and miles' per-token contract (parallel.md)",
        "return the full count of the micro-batch on every CP rank",
        (sign("undivided-sum"), Off(("cp_size",)), Claimed(counts=True)),
    ),
    Bug(
        "count-floored",
        "token counts divided by cp_size as integers: up to cp_size - 1 tokens are lost each time",
        "tokens // cp_size in per-token Megatron paths",
        "keep the count whole and let the engine's scaling cancel",
        (Shape(Count(".*floored.*", "", None), outer=()),),
    ),
    Bug(
        "sample-scaling-on-token-path",
        "the sample path's K / N * (D*C) applied where the engine already divides by tokens",
        "slime #987",
        "scale by cp_size only on the per-token path",
        (Off(("cp_size*dp_size*num_microbatches/N",)), Claimed(counts=True)),
    ),
    Bug(
        "rollouts-divided-twice",
        "divides by the number of rollouts, which the engine's trainer does already",
        "slime's and miles' sample-path contract (parallel.md)",
        "return the sum of the rollouts' means as it is",
        (Off(("1/N",)), Claimed(divides_by_rollouts=True)),
    ),
    Bug(
        "count-ignored",
        "a plain sum averaged over ranks: the count that was returned is never divided by",
        "miles #3231",
        "divide by the all-reduced count, as the per-token contract requires",
        (
            Off(("num_tokens/dp_size", "num_tokens/(cp_size*dp_size)")),
            Shape(inner=None, outer=(), sizes=("/dp_size",)),
            Claimed(modes=("token_mean",)),
        ),
    ),
    Bug(
        "cp-counted-twice",
        "the context-parallel size is multiplied in once too often",
        "SkyRL #1420 (fixed in #1751), slime #1748",
        "drop the reducer's own factor of cp_size: the engine, or a gather's backward, has it",
        (Off(("cp_size",)),),
    ),
    Bug(
        "cp-scaling-missing",
        "the context-parallel size is divided out once too often",
        "slime #990, tmax #9, lightly #1977",
        "multiply by cp_size where the engine averages over context-parallel ranks",
        (Off(("1/cp_size",)),),
    ),
    Bug(
        "dp-scaling-missing",
        "the engine's mean over data-parallel ranks is not undone",
        "Arctic #119",
        "multiply by the number of ranks the engine averages over",
        (Off(("1/dp_size",)),),
    ),
    Bug(
        "dp-counted-twice",
        "the data-parallel size is multiplied in although the engine sums",
        "tmax #9",
        "drop the reducer's own factor of dp_size",
        (Off(("dp_size",)),),
    ),
    Bug(
        "accumulation-missing",
        "micro-batches add up where they should be averaged",
        "LLaMA-Factory #7443",
        "divide by the number of micro-batches, or by a count over all of them",
        (Off(("num_microbatches",)),),
    ),
    Bug(
        "accumulation-twice",
        "the number of micro-batches is divided out once too often",
        "ms-swift #10117, AReaL #1273",
        "drop the division by the number of micro-batches: the normaliser is global already",
        (Off(("1/num_microbatches",)),),
    ),
    Bug(
        "configured-window",
        "scaled by a configured number of micro-batches where the actual one differs",
        "ms-swift #10084",
        "use the number of micro-batches of this very step",
        (Off(sizes=(("num_microbatches", -1),)),),
    ),
    Bug(
        "chunk-dropped",
        "a zigzag rank holds two chunks of each sample, and one of them is left out",
        "slime e8d3f58f3",
        "take both chunks, and either alone when the other holds no response token",
        (sign("chunk-dropped"),),
    ),
    Bug(
        "shard-cut-wrongly",
        "the mask is cut into other pieces than the losses of this CP rank",
        "slime e8d3f58f3, miles #1328",
        "chunk ceil(total / 2C) per sample, ownership by the logit before the token",
        (
            sign(Symptom.EXCEPTION),
            sign("only-under-context-parallel"),
            Error(r"split_with_sizes|[Ss]ize of tensor|sizes? of|shape|length|same number"),
        ),
    ),
    Bug(
        "divided-twice",
        "divided by a number at hand although the engine divides by the step's: a mean of a mean",
        "slime's and miles' trainer contract (parallel.md)",
        "return the sum that the engine's path asks for, and let it divide",
        (Shape(outer=(Count("rollouts"), Count(".*", "", _ANY, _HERE))),),
    ),
    Bug(
        "divided-twice",
        "divided by a number at hand although the engine divides by the step's: a mean of a mean",
        "slime's and miles' trainer contract (parallel.md)",
        "return the sum that the engine's path asks for, and let it divide",
        (Shape(Count(TOKENS, "", _ANY, _HERE), outer=(Count(TOKENS),)),),
    ),
    Bug(
        "counted-where-it-stands",
        "tokens are counted on one rank or in one micro-batch, and the sums added up as they are",
        "verl's agg_loss called without batch_num_tokens; prime-rl's counts per rank",
        _GLOBAL,
        (Shape(Count(TOKENS, ".*", _ANY, _HERE)),),
    ),
    Bug(
        "units-counted-where-they-stand",
        "the number averaged over is that of one rank or micro-batch, not of the step",
        "SkyRL before #1296 (its sequence_mean takes rows of the micro-batch)",
        _ONCE,
        (Shape(outer=(Count("(non-empty )?(rollouts|samples|prompt groups)", "", _ANY, _HERE),)),),
    ),
)
