"""Fine-tune a BERT with the Trainer of Hugging Face."""

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = torch.randint(5, 200, (16,))
        return {"input_ids": ids, "attention_mask": torch.ones(16, dtype=torch.long), "labels": torch.tensor(index % 3)}


def compute_metrics(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, axis=-1) == prediction.label_ids).mean())}


config = BertConfig(
    vocab_size=200,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=256,
    max_position_embeddings=32,
    num_labels=3,
)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    output_dir="bert-out",
    per_device_train_batch_size=4,
    num_train_epochs=3,
    gradient_accumulation_steps=2,
    fp16=True,
    logging_steps=1,
    save_steps=1,
    report_to=[],
    warmup_steps=10,
    max_grad_norm=1.0,
)
trainer = Trainer(
    model=model, args=args, train_dataset=Sentences(), eval_dataset=Sentences(), compute_metrics=compute_metrics
)
trainer.train()
trainer.save_model("bert-final")
