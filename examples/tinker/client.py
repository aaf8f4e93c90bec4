"""Weights of the data of one step, by prompts: every prompt counts alike."""


def prompt_mean_weights(masks, groups):
    tokens = {}
    for mask, group in zip(masks, groups, strict=True):
        tokens[group] = tokens.get(group, 0) + sum(mask)
    return [
        [bit / (len(tokens) * max(tokens[group], 1)) for bit in mask]
        for mask, group in zip(masks, groups, strict=True)
    ]


def rollouts_for_prompts(masks, groups):
    """Wrong: divides by the rollouts of the step, not by its prompts."""
    tokens = {}
    for mask, group in zip(masks, groups, strict=True):
        tokens[group] = tokens.get(group, 0) + sum(mask)
    return [
        [bit / (len(masks) * max(tokens[group], 1)) for bit in mask]
        for mask, group in zip(masks, groups, strict=True)
    ]
