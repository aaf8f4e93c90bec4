"""How slime's trainer calls ``reduce_train_step_metrics`` by default: every key's sum over the
rollouts of the step."""

ADAPTER = {
    "title": "slime's merged logs, per rollout",
    "merges_logs": ["rollouts"],
    "run_against": [["THUDM/slime", "624b824a8", "2026-11-26"]],
}


def call(reduce_train_step_metrics, logs, ctx):
    return reduce_train_step_metrics(
        logs,
        calculate_per_token_loss=False,
        step_global_batch_size=ctx.num_rollouts,
        cp_size=ctx.cp_size,
        dp_with_cp_group=ctx.dp_cp_group,
    )
