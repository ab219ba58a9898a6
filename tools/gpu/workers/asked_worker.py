"""Run jobs as their users write them, time each, and name its kernels; needs no paceline.

Reads a list of jobs as JSON from stdin and writes what was seen of each as one line of JSON. Models
have weights that are drawn: nothing is fetched.
"""

import contextlib
import gc
import json
import platform
import statistics
import sys
import time

import torch

#: Kernels named of a step, the slowest first.
_MOST_KERNELS = 40


def main():
    """Serve every job."""
    for job in json.loads(sys.stdin.read()):
        print(json.dumps(_attempted(job)), flush=True)


def _attempted(job):
    try:
        return _seen(job)
    except Exception as error:  # noqa: BLE001
        return {"reason": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        gc.collect()
        torch._dynamo.reset()
        if _is_cuda():
            torch.cuda.empty_cache()


def _seen(job):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = job.get("tf32", False)
    torch.backends.cudnn.allow_tf32 = job.get("tf32", False)
    step = KINDS[job["kind"]](job)
    if _is_cuda():
        torch.cuda.empty_cache()
    seen = _timed(step, job)
    seen.update(kernels=_kernels(step) if _is_cuda() else [], **_software())
    return seen


def _is_cuda():
    return torch.cuda.is_available()


def _device():
    return "cuda" if _is_cuda() else "cpu"


def _wait():
    if _is_cuda():
        torch.cuda.synchronize()


def _software():
    return {
        "framework_version": torch.__version__,
        "python_version": platform.python_version(),
        "platform_version": torch.version.cuda,
    }


def _timed(step, job):
    """Seconds of each step after some to warm up, the allocator's peaks, and mean power."""
    for _ in range(job.get("warmup", 3)):
        step()
    _wait()
    if _is_cuda():
        torch.cuda.reset_peak_memory_stats()
    took_s, began_s, began_j = [], time.monotonic(), _energy_j()
    while len(took_s) < 3 or time.monotonic() - began_s < job.get("seconds", 1.0):
        started_s = time.perf_counter()
        step()
        _wait()
        took_s.append(time.perf_counter() - started_s)
    peaks = {}
    if began_j is not None:
        peaks["mean_power_w"] = (_energy_j() - began_j) / (time.monotonic() - began_s)
    if _is_cuda():
        peaks["allocated_bytes"] = torch.cuda.max_memory_allocated()
        peaks["reserved_bytes"] = torch.cuda.max_memory_reserved()
    if job["kind"] == "jax-training":
        from own_jax_models import peak_bytes

        peaks["allocated_bytes"] = peaks["reserved_bytes"] = peak_bytes()
    return dict(samples_s=took_s, median_s=statistics.median(took_s), **peaks)


def _energy_j():
    """What the driver has counted; None where it counts nothing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return (
            pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) / 1e3
        )
    except Exception:  # noqa: BLE001
        return None


def _kernels(step):
    """Name, launches and seconds of each kernel of one step, the slowest first."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as seen:
        step()
        _wait()
    found = [(one.key, one.count, one.device_time_total / 1e6) for one in seen.key_averages()]
    kernels = sorted((one for one in found if one[2] > 0), key=lambda one: -one[2])
    total = ["all", sum(one[1] for one in kernels), sum(one[2] for one in kernels)]
    return [total, *([name[:100], count, spent] for name, count, spent in kernels[:_MOST_KERNELS])]


def _transformers(job):
    import transformers

    known = dict(job["config"])
    if "class" in known:
        config = getattr(transformers, known.pop("class"))(**known)
    else:
        config = transformers.AutoConfig.for_model(**known)
        if getattr(config, "is_encoder_decoder", False):
            config.decoder_start_token_id = 0
    made = getattr(transformers, job["model"])
    with drawn(job):
        model = made(config) if not hasattr(made, "from_config") else made.from_config(config)
    model = model.to(width_of(job))
    if "part" in job:
        model = getattr(model, job["part"])
    return _in_four_bits(model).to(_device()) if job.get("bits") == 4 else model


def width_of(job):
    """The type of weights that a job asks for; FP32 without."""
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
    return kinds.get(job.get("weights"), torch.float32)


@contextlib.contextmanager
def drawn(job):
    """Weights are drawn where they will lie, as wide as asked."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(width_of(job))
    try:
        with torch.device(_device()):
            yield
    finally:
        torch.set_default_dtype(before)


def _in_four_bits(model):
    """Linear layers but the head as bitsandbytes keeps them for QLoRA: NF4, scales quantised."""
    import bitsandbytes

    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, torch.nn.Linear) and name != "lm_head"
    ]
    for parent, name, layer in found:
        with torch.device("meta"):
            kept = bitsandbytes.nn.Linear4bit(
                layer.in_features, layer.out_features, bias=layer.bias is not None,
                compute_dtype=torch.bfloat16, compress_statistics=True, quant_type="nf4",
            )  # fmt: skip
        kept.weight = bitsandbytes.nn.Params4bit(
            layer.weight.data, requires_grad=False, compress_statistics=True, quant_type="nf4"
        )
        kept.bias = layer.bias
        setattr(parent, name, kept)
    model.is_loaded_in_4bit = True
    return model


def _cast(job):
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
    if job.get("autocast"):
        return torch.autocast(_device(), kinds[job["autocast"]])
    return contextlib.nullcontext()


def _optimizer(job, model):
    trained = [one for one in model.parameters() if one.requires_grad]
    if job.get("optimizer", "adamw") == "sgd":
        return torch.optim.SGD(trained, lr=1e-4, momentum=0.9)
    if job.get("optimizer") == "adamw-8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(trained, lr=1e-6)
    return torch.optim.AdamW(trained, lr=1e-6, fused=job.get("fused") or None)


def _trained(job, model, loss_of):
    optimizer = _optimizer(job, model)
    scaler = torch.amp.GradScaler(_device()) if job.get("autocast") == "fp16" else None

    def step():
        optimizer.zero_grad()
        with _cast(job):
            loss = loss_of()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return step


def _ids(job, high):
    return torch.randint(0, high, (job["batch"], job["seq"]), device=_device())


def language_training(job):
    """A step of a Hugging Face model that tells its own loss; full, or by adapters."""
    model, ids = _tuned(job), _ids(job, 30000)
    run = torch.compile(model) if job.get("compiled") else model
    labels = ids[:, : job["target"]].contiguous() if "target" in job else ids
    return _trained(job, model, lambda: run(input_ids=ids, labels=labels).loss)


def _tuned(job):
    """The model of a job, with its adapters and checkpoints."""
    model = _transformers(job).train()
    if job.get("bits") == 4:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if job.get("lora_rank"):
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=job["lora_rank"], **job["lora"]))
    if job.get("checkpointing"):
        model.config.use_cache = False
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def mixed_training(job):
    """A step of a model that reads sound, boxes, or pictures and words."""
    from asked_inputs import LOSSES

    model = _tuned(job)
    return _trained(job, model, LOSSES[job["reads"]](job, model, _device()))


def own_training(job):
    """A step of a model of ``own_models`` that names a class of each row."""
    import own_models

    model, example = getattr(own_models, job["name"])()
    model = model.to(_device()).train()
    x = example[:1].expand(job["batch"], *example.shape[1:]).contiguous().to(_device())
    x = torch.randn_like(x) if x.is_floating_point() else torch.randint_like(x, 10_000)

    def loss():
        rows = model(x)
        rows = (rows.movedim(1, -1) if rows.dim() == 4 else rows).flatten(0, -2)
        labels = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        return torch.nn.functional.cross_entropy(rows, labels)

    return _trained(job, model, loss)


def jax_training(job):
    """A step of a model of ``own_jax_models``, compiled by XLA."""
    from own_jax_models import step_of

    return step_of(job)


def segmenting_training(job):
    """A step of a Hugging Face model that names each pixel of its pictures."""
    model = _transformers(job).train()
    shape = (job["batch"], job["image"], job["image"])
    pictures = torch.randn(job["batch"], 3, *shape[1:], device=_device())
    labels = torch.zeros(shape, dtype=torch.int64, device=_device())
    return _trained(job, model, lambda: model(pixel_values=pictures, labels=labels).loss)


def encoding(job):
    """A pass of a batch of texts through an encoder."""
    model = _transformers(job).eval()
    ids = _ids(job, min(model.config.vocab_size, 30000))
    return _passed(lambda: model(input_ids=ids, attention_mask=torch.ones_like(ids)))


def pictures_encoding(job):
    """A pass of a batch of pictures through an encoder."""
    model = _transformers(job).eval()
    shape = (job["batch"], 3, job["image"], job["image"])
    pictures = torch.randn(shape, device=_device(), dtype=width_of(job))
    return _passed(lambda: model(pixel_values=pictures))


def _passed(run):
    def step():
        with torch.inference_mode():
            return run()

    return step


def classifier_training(job):
    """A step of a Hugging Face model with one label a text."""
    model = _transformers(job).train()
    ids, labels = _ids(job, 30000), torch.zeros(job["batch"], dtype=torch.int64, device=_device())
    return _trained(job, model, lambda: model(input_ids=ids, labels=labels).loss)


def prefill(job):
    """The first token of a batch of prompts."""
    model, ids = _transformers(job).eval(), _ids(job, 30000)

    def step():
        with torch.no_grad():
            return model(input_ids=ids, use_cache=True, logits_to_keep=1)

    return step


def decoding(job):
    """``tokens`` more tokens of a batch of prompts by ``generate``; per step all of them."""
    model, ids = _transformers(job).eval(), _ids(job, 30000)
    tokens = job["tokens"]

    def step():
        with torch.no_grad():
            return model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                max_new_tokens=tokens, min_new_tokens=tokens,
            )  # fmt: skip

    return step


def hearing(job):
    """Whisper writes down one recording of 30 s."""
    model = _transformers(job).eval()
    sound = torch.randn(
        job["batch"], model.config.num_mel_bins, 3000, device=_device(), dtype=model.dtype
    )
    tokens = job["tokens"]

    def step():
        with torch.no_grad():
            return model.generate(
                sound, max_new_tokens=tokens, min_new_tokens=tokens, num_beams=job.get("beams", 1)
            )

    return step


def vision_training(job):
    """A step of a model of timm or torchvision."""
    model = _vision(job).train()
    shape = (job["batch"], 3, job.get("image", 224), job.get("image", 224))
    pictures = torch.randn(*shape, device=_device())
    if job.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
        pictures = pictures.contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(job["batch"], dtype=torch.int64, device=_device())
    run = torch.compile(model) if job.get("compiled") else model
    loss = torch.nn.functional.cross_entropy
    return _trained(job, model, lambda: loss(run(pictures), labels))


def vision_inference(job):
    """A pass of a model of timm or torchvision whose weights are as wide as its pictures."""
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    dtype = kinds[job.get("weights", "fp32")]
    model = _vision(job).eval().to(dtype)
    pictures = torch.randn(job["batch"], 3, 224, 224, device=_device(), dtype=dtype)
    if job.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
        pictures = pictures.contiguous(memory_format=torch.channels_last)
    if job.get("graph") == "script":
        with torch.no_grad():
            model = torch.jit.freeze(torch.jit.trace(model, pictures))
    run = torch.compile(model, mode="reduce-overhead") if job.get("graph") == "cuda" else model

    def step():
        with torch.inference_mode():
            return run(pictures)

    return step


def _vision(job):
    library, _, name = job["name"].partition(":")
    if library == "timm":
        import timm

        model = timm.create_model(name, **job.get("settings", {}))
    else:
        import torchvision

        model = torchvision.models.get_model(name, weights=None)
    return model.to(_device())


def detection_training(job):
    """A step of a torchvision detector on pictures of 800 × 1,216 with eight boxes each."""
    import torchvision

    made = getattr(torchvision.models.detection, job["name"])
    model = made(weights=None, weights_backbone=None).to(_device()).train()
    if job.get("pretrained"):
        _frozen_below(model.backbone.body)
    corners = torch.rand(8, 2, device=_device()) * 400
    boxes = torch.cat((corners, corners + 100), 1)
    labels = torch.ones(8, dtype=torch.int64, device=_device())
    pictures = [torch.rand(3, 800, 1216, device=_device()) for _ in range(job["batch"])]
    targets = [{"boxes": boxes, "labels": labels} for _ in pictures]
    if job.get("masks"):
        masks = torch.ones(8, 800, 1216, dtype=torch.uint8, device=_device())
        targets = [{**one, "masks": masks} for one in targets]
    return _trained(job, model, lambda: sum(model(pictures, targets).values()))


def _frozen_below(body):
    """What a pretrained backbone of torchvision keeps: its norms, its stem and its first layer."""
    from torchvision.ops import FrozenBatchNorm2d

    for parent in list(body.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, torch.nn.BatchNorm2d):
                setattr(parent, name, FrozenBatchNorm2d(layer.num_features).to(_device()))
    for part in (body.conv1, body.layer1):
        part.requires_grad_(False)


def clip_training(job):
    """A step of a torchvision network of clips."""
    import torchvision

    model = torchvision.models.get_model(job["name"], weights=None).to(_device()).train()
    shape = (job["batch"], 3, job["frames"], job["image"], job["image"])
    clips = torch.randn(shape, device=_device())
    labels = torch.zeros(job["batch"], dtype=torch.int64, device=_device())
    loss = torch.nn.functional.cross_entropy
    return _trained(job, model, lambda: loss(model(clips), labels))


def picturing(job):
    """A picture or clip of a pipeline of Diffusers, its prompt already read."""
    from asked_pictures import made

    with drawn(job):
        make = made(job)
    return _passed(make)


def denoiser_training(job):
    """A step of the network of a pipeline on noise."""
    from asked_pictures import denoiser

    with drawn(job):
        model, inputs = denoiser(job)
    model.train()
    target = torch.randn_like(inputs["sample"])
    mse = torch.nn.functional.mse_loss
    return _trained(job, model, lambda: mse(model(**inputs).sample, target))


def tower(job):
    """A step of dense layers so narrow that launches are all there is."""
    layers = [torch.nn.Linear(job["width"], job["width"]) for _ in range(job["layers"])]
    model = torch.nn.Sequential(*layers).to(_device())
    x = torch.randn(job["batch"], job["width"], device=_device())
    if job.get("forward"):

        def step():
            with torch.no_grad():
                return model(x)

        return step
    return _trained(job, model, lambda: model(x).square().mean())


def recurrent(job):
    """A step of an LSTM over embedded words that tells each next word."""
    nn = torch.nn

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(job["vocab"], job["width"])
            self.lstm = nn.LSTM(job["width"], job["width"], job["layers"], batch_first=True)
            self.head = nn.Linear(job["width"], job["vocab"])

        def forward(self, ids):
            return self.head(self.lstm(self.embedding(ids))[0])

    model, ids = Writer().to(_device()), _ids(job, job["vocab"])
    loss = nn.functional.cross_entropy
    return _trained(job, model, lambda: loss(model(ids).flatten(0, 1), ids.flatten()))


KINDS = {
    "language-training": language_training,
    "classifier-training": classifier_training,
    "prefill": prefill,
    "decoding": decoding,
    "hearing": hearing,
    "vision-training": vision_training,
    "vision-inference": vision_inference,
    "detection-training": detection_training,
    "clip-training": clip_training,
    "mixed-training": mixed_training,
    "own-training": own_training,
    "jax-training": jax_training,
    "segmenting-training": segmenting_training,
    "encoding": encoding,
    "pictures-encoding": pictures_encoding,
    "picturing": picturing,
    "denoiser-training": denoiser_training,
    "tower": tower,
    "recurrent": recurrent,
}


if __name__ == "__main__":
    main()
