"""How miles' ``split_train_data_by_dp_raw`` is called; each shard has its ``partition``."""

ADAPTER = {
    "title": "miles' split_train_data_by_dp_raw",
    "deals": {"whole_groups": True},
    "run_against": [["radixark/miles", "18fd8d82b", "2026-11-27"]],
}


def call(split_train_data_by_dp_raw, args, data, dp_size):
    return split_train_data_by_dp_raw(args, data, dp_size=dp_size)
