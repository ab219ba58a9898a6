"""How `paceline.loop` cuts and splits models of others: writes two tables of loop_mesh.md.

``python benchmarks/loop_mesh.py cuts`` traces one classifier of each family of torchvision and 20
decoders of transformers, cuts them in 2 and in 4, and sets the slowest stage beside the best cut
that the graph has anywhere. ``torchrun --nproc-per-node 2 benchmarks/loop_mesh.py pairs`` splits
the decoders over two ranks. Needs torchvision and transformers; weights are random.
"""

import re
import sys
import time
import warnings

import torch

_STUBS = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _STUBS.define(f"{_name}(Tensor boxes, Tensor scores, float x) -> Tensor")

warnings.simplefilter("ignore")

DECODERS = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "phi3", "gpt2", "gpt_neox",
    "gptj", "opt", "bloom", "falcon", "olmo2", "starcoder2", "cohere", "stablelm", "granite",
    "codegen",
)  # fmt: skip
LAYERS, WIDTH, HEADS, TOKENS = 8, 64, 4, 1000


def decoder(kind):
    from transformers import AutoConfig, AutoModelForCausalLM

    base = AutoConfig.for_model(kind)
    names = {
        "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2, "intermediate_size": 2 * WIDTH, "head_dim": 16,
        "ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH, "rotary_dim": 8, "n_inner": 2 * WIDTH,
    }  # fmt: skip
    told = {
        k: v
        for k, v in names.items()
        if hasattr(base, k) and not isinstance(getattr(type(base), k, None), property)
    }
    told |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    config = AutoConfig.for_model(kind, vocab_size=TOKENS, use_cache=False, **told)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).float(), (torch.randint(0, TOKENS, (2, 32)),)


def classifiers():
    """The smallest classifier of each family of torchvision."""
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    family = {}
    for name in names:
        weights = torchvision.models.get_model_weights(name)
        size = next(iter(weights)).meta["num_params"]
        key = re.match(r"[a-z]+(?:_v2|_v3|2)?", name)[0]
        family[key] = min(family.get(key, (size, name)), (size, name))
    return [name for _, name in sorted(family.values(), key=lambda one: one[1])]


def classifier(name):
    import torchvision

    torch.manual_seed(0)
    size = 299 if name == "inception_v3" else 224
    return torchvision.models.get_model(name, weights=None), (torch.randn(2, 3, size, size),)


def ratios(model, example):
    """Slowest stage over that of the best cut anywhere, of 2 and of 4 stages, and the seconds."""
    from paceline.loop.parallel import cuts
    from paceline.loop.parallel.stages import traced

    seen = []
    profile = cuts.profile
    cuts.profile = lambda module: seen.append(profile(module)) or seen[-1]
    found = []
    started = time.process_time()
    try:
        for stages in (2, 4):
            pipe = traced(model, stages, example)
            assert pipe.num_stages == stages
            ends = cuts.choose(seen[-1], stages)
            best, _ = cuts.best_cut(seen[-1].cost, [True] * len(seen[-1].cost), stages)
            found.append(cuts.slowest(seen[-1].cost, ends) / best)
    finally:
        cuts.profile = profile
    return found, time.process_time() - started


def cut_all():
    from paceline.loop.errors import LoopError

    rows, num_good = [], {}
    models = [("torchvision", n, classifier) for n in classifiers()]
    models += [("transformers", n, decoder) for n in DECODERS]
    for source, name, build in models:
        try:
            (two, four), seconds = ratios(*build(name))
            good = max(two, four) <= 1.10
            row = f"| {source} | {name} | {two:.3f} | {four:.3f} | {seconds:.0f} |"
        except (LoopError, RuntimeError, ValueError, AssertionError) as error:
            good = False
            row = f"| {source} | {name} | {str(error).splitlines()[0][:90]} | | |"
        rows.append(row)
        num, of = num_good.get(source, (0, 0))
        num_good[source] = (num + good, of + 1)
        print(row, flush=True)
    print(num_good)


def split_all():
    import contextlib
    import io

    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from paceline.loop.errors import LoopError
    from paceline.loop.parallel.tensor_parallel import split

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    for name in DECODERS:
        model, example = decoder(name)
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                kept = split(model, mesh, example)
            left = said.getvalue().count("leaves")
            rows = {re.sub(r"\d+", "*", pair.row) for pair in kept}
            text = f"{len(kept)} | {left} | {', '.join(sorted(rows))}"
        except LoopError as error:
            text = f"0 | | {str(error)[:150]}"
        if dist.get_rank() == 0:
            print(f"| {name} | {text} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    cut_all() if sys.argv[1] == "cuts" else split_all()
