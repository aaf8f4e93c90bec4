"""Right but for its micro-batches: only responses are counted, so they exceed the budget."""


def split_train_data_by_dp(args, data, dp_size):
    groups, size = {}, args.n_samples_per_prompt
    for i, group in enumerate(data["prompt_group_indices"]):
        groups.setdefault(group, []).append(i)
    if {len(own) for own in groups.values()} != {size}:
        raise ValueError("incomplete groups")
    if len(groups) % dp_size or args.global_batch_size % (dp_size * size):
        raise ValueError("groups that cannot be dealt")
    every = list(groups.values())
    cells = [[i for own in every[rank::dp_size] for i in own] for rank in range(dp_size)]
    return [{"partition": own, "micro_batch_indices": packed(args, own, data)} for own in cells]


def packed(args, own, data):
    """A micro-batch for every two samples, unless responses exceed the budget."""
    found = []
    for n in range(0, len(own), 2):
        tokens = sum(data["response_lengths"][i] for i in own[n : n + 2])
        pair = list(range(n, n + 2))
        found += [pair] if tokens <= (args.max_tokens_per_gpu or tokens) else [[p] for p in pair]
    return found
