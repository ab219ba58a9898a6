"""Training losses of models that read sound, boxes, or pictures and words.

Each function takes a job, its model and its device, and returns what computes the loss of a step.
"""

import torch


def sound(job, model, device):
    """Letters of a recording, by CTC."""
    heard = torch.randn(job["batch"], 16_000 * job["sound_s"], device=device)
    letters = torch.randint(1, 30, (job["batch"], 100), device=device)
    return lambda: model(input_values=heard, labels=letters).loss


def spoken(job, model, device):
    """Words of a recording of 30 s, by Whisper."""
    bins = model.config.num_mel_bins
    heard = torch.randn(job["batch"], bins, 3000, device=device)
    words = torch.randint(0, 30_000, (job["batch"], job["target"]), device=device)
    return lambda: model(input_features=heard, labels=words).loss


def boxes(job, model, device):
    """Eight boxes a picture of 800 x 1,216."""
    pictures = torch.randn(job["batch"], 3, 800, 1216, device=device)
    one = {
        "class_labels": torch.ones(8, dtype=torch.int64, device=device),
        "boxes": torch.rand(8, 4, device=device) * 0.4 + 0.1,
    }
    labels = [one for _ in range(job["batch"])]
    return lambda: model(pixel_values=pictures, labels=labels).loss


def pairs(job, model, device):
    """Pictures and their words, by contrast."""
    size = model.config.vision_config.image_size
    asked = {
        "pixel_values": torch.randn(job["batch"], 3, size, size, device=device),
        "input_ids": torch.randint(0, 30_000, (job["batch"], 77), device=device),
    }
    return lambda: model(**asked, return_loss=True).loss


def pictured(job, model, device):
    """Words after a picture, whose tokens stand first."""
    size = model.config.vision_config.image_size
    width = next(model.parameters()).dtype
    shape = (job["batch"], job["patches"] + job["text"])
    ids = torch.randint(0, 30_000, shape, device=device)
    ids[:, : job["patches"]] = model.config.image_token_id
    pictures = torch.randn(job["batch"], 3, size, size, device=device, dtype=width)
    labels = ids.masked_fill(ids == model.config.image_token_id, -100)
    asked = {"input_ids": ids, "pixel_values": pictures, "labels": labels}
    if model.config.model_type == "paligemma":
        asked["token_type_ids"] = torch.zeros_like(ids)
    return lambda: model(**asked).loss


LOSSES = {"sound": sound, "spoken": spoken, "boxes": boxes, "pairs": pairs, "pictured": pictured}
