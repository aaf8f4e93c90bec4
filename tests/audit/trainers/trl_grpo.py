"""TRL's GRPOTrainer as it is, a tiny random model: ``trl_grpo.py LOSS_TYPE [OPTION=NUMBER]``."""

from __future__ import annotations

import random
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(60)}}
core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, padding_side="left", **special)
config = Qwen2Config(
    vocab_size=63,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=128,
)
usual = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_completion_length": 12,
    "max_steps": 2,
}
given = (option.split("=") for option in sys.argv[2:])
more = {name: float(value) if "." in value else int(value) for name, value in given}
arguments = GRPOConfig(
    output_dir="out",
    use_cpu=True,
    report_to=[],
    beta=0.0,
    bf16=False,
    save_strategy="no",
    loss_type=sys.argv[1],
    **usual | more,
)
prompts = [f"w{i} w{i + 1} w{i + 2}" for i in range(16)]
GRPOTrainer(
    model=Qwen2ForCausalLM(config),
    args=arguments,
    processing_class=tokenizer,
    reward_funcs=lambda completions, **_: [
        len(c.split()) / 10 + random.random() for c in completions
    ],
    train_dataset=Dataset.from_dict({"prompt": prompts}),
).train()
