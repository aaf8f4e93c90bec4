"""transformers' Trainer as it is: 54 and 44 labels in two optimizer steps of two micro-batches."""

from __future__ import annotations

import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=63,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=128,
)
tokens = [[(i * 7 + j) % 60 + 3 for j in range(10)] for i in range(16)]
rows = [
    {"input_ids": row, "labels": [-100] * (2 + i % 5) + row[2 + i % 5 :]}
    for i, row in enumerate(tokens)
]
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_steps=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
)
data = Dataset.from_list(rows)
Trainer(model=Qwen2ForCausalLM(config), args=arguments, train_dataset=data).train()
