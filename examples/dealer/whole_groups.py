"""Deals whole prompt groups to data-parallel ranks, as many to each, one sample a micro-batch;
raises where a group is not complete, or cannot stay in one optimizer step."""


def split_train_data_by_dp(args, data, dp_size):
    groups, size = {}, args.n_samples_per_prompt
    for i, group in enumerate(data["prompt_group_indices"]):
        groups.setdefault(group, []).append(i)
    if broken := [g for g, own in groups.items() if len(own) != size]:
        raise ValueError(f"groups {broken} do not have {size} samples")
    if len(groups) % dp_size or args.global_batch_size % (dp_size * size):
        raise ValueError(f"{len(groups)} groups cannot be dealt to {dp_size} ranks")
    every = list(groups.values())
    cells = [[i for own in every[rank::dp_size] for i in own] for rank in range(dp_size)]
    return [
        {"partition": own, "micro_batch_indices": [[n] for n in range(len(own))]} for own in cells
    ]
