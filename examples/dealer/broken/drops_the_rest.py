"""Whole groups, as many to each rank; what is left over, or not complete, is silently dropped."""


def split_train_data_by_dp(args, data, dp_size):
    groups = {}
    for i, group in enumerate(data["prompt_group_indices"]):
        groups.setdefault(group, []).append(i)
    whole = [own for own in groups.values() if len(own) == args.n_samples_per_prompt]
    each = len(whole) // dp_size
    return [[i for own in whole[r * each : (r + 1) * each] for i in own] for r in range(dp_size)]
