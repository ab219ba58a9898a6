import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64))
ids = torch.randint(0, 100, (64, 24))


class D(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {"input_ids": ids[i], "labels": ids[i]}


args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    max_steps=6,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
    logging_steps=1,
)
t = Trainer(model=model, args=args, train_dataset=D())
t.train()
print([h.get("loss") for h in t.state.log_history])
