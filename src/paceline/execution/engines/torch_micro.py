"""The machine's own ceilings through PyTorch: matrix products, memory, copies, collectives.

Standard library and torch only.
"""

import os
import sys
from functools import partial

from engine import imported, main, time_steps


def serve(request, progress):
    """Run every micro-benchmark that this device has."""
    torch = imported("torch")
    if request.get("threads"):
        torch.set_num_threads(request["threads"])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        results = list(together(torch, request, progress))
    else:
        results = list(alone(torch, request, progress))
    return {
        "framework": "torch",
        "framework_version": torch.__version__,
        "python_version": sys.version.split()[0],
        "platform_version": torch.version.hip or torch.version.cuda,
        "results": results,
    }


def alone(torch, request, progress):
    """Everything that one device can do by itself."""
    device = request["device"]
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    if device == "cpu":
        processors = request.get("threads") or torch.get_num_threads()
        request = dict(request, timing=dict(request["timing"], processors=processors))
    for dtype in request["dtypes"]:
        for size in request["matmul_sizes"]:
            yield matmul(torch, device, wait, dtype, size, request, progress, None)
    yield memory(torch, device, wait, request, progress)
    yield fresh(torch, device, wait, request, progress)
    yield launch(torch, device, wait, request, progress)
    if device == "cuda":
        for is_pinned in (True, False):
            yield copy(torch, wait, is_pinned, request, progress)
    if request.get("layers"):
        for name, note, shape, step in kernels(torch):
            timing = time_steps(step, wait, request["timing"], progress)
            yield dict(timing, name=name, dtype="fp32", shape=shape, note=note)


def kernels(torch):
    """Kinds of work that models are made of, in FP32 on a CPU, at sizes that models have.

    Yields name, note, shape numbers and what is timed.
    """
    for note, side, channels, filters, window in (
        ("", 28, 128, 128, 3), ("pointwise", 14, 256, 1024, 1), ("depthwise", 56, 128, 128, 3),
    ):  # fmt: skip
        groups = channels if note == "depthwise" else 1
        shape = [4, channels, side, side, filters, window, window, side, side, groups]
        image = torch.rand(4, channels, side, side)
        weight = torch.rand(filters, channels // groups, window, window)
        given = (None, (1, 1), (window // 2, window // 2), (1, 1), False, (0, 0), groups)
        step = partial(torch.convolution, image, weight, *given)
        with torch.no_grad():
            gradient = step()
        yield "CONV", note, shape, step
        if note:
            continue
        backward = partial(torch.ops.aten.convolution_backward, gradient, image, weight, *given)
        yield "CONV_BACKWARD_INPUT", note, shape, partial(backward, (True, False, False))
        yield "CONV_BACKWARD_WEIGHT", note, shape, partial(backward, (False, True, False))
    image, weight = torch.rand(1, 512, 7, 7), torch.rand(512, 512, 3, 3)
    step = partial(torch.convolution, image, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    yield "CONV", "few pixels", [1, 512, 7, 7, 512, 3, 3, 7, 7, 1], step
    weight = torch.rand(4096, 4096)
    for note, rows in (("few rows", 16), ("one row", 1)):  # One thread multiplies with a vector.
        step = partial(torch.mm, torch.rand(rows, 4096), weight.t())
        yield "MATMUL", note, [1, rows, 4096, 4096], step
    heads = torch.rand(4, 12, 128, 64)
    attend = partial(torch.nn.functional.scaled_dot_product_attention, heads, heads, heads)
    yield "ATTENTION", "", [4, 12, 12, 128, 128, 64, 0], attend
    cells, tokens = torch.nn.LSTM(128, 128, batch_first=True), torch.rand(16, 64, 128)
    yield "RECURRENT", "", [16, 64, 128, 128, 1, 1, 4], partial(_without_grad, torch, cells, tokens)
    image = torch.rand(4, 64, 56, 56)
    pool = partial(torch.nn.functional.max_pool2d, image, 3, 2, 1, return_indices=True)
    yield "POOL", "", [4 * 64 * 28 * 28, 1, 1], pool
    pooled, places = pool()
    window = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    backward = torch.ops.aten.max_pool2d_with_indices_backward
    unpool = partial(backward, pooled, image, *window, places)
    yield "POOL_BACKWARD", "", [4 * 64 * 28 * 28, 1, 1], unpool
    many, other = torch.rand(1 << 24), torch.rand(1 << 24)
    yield "ELEMENTWISE", "in place", [1 << 24, 1, 3], partial(many.add_, other, alpha=1e-9)
    images, norm = torch.rand(4, 1, 256, 56, 56), torch.nn.BatchNorm2d(256).eval()
    step = partial(_without_grad, torch, _normalise_all, torch, norm, images)
    yield "ELEMENTWISE", "cached", [images.numel(), 1, 4], step
    layers = _small_layers(torch)
    step = partial(_without_grad, torch, layers, torch.rand(1, 16, 4, 4))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # What the thread that calls does by itself.
    yield "ELEMENTWISE", "small layers", [len(layers), 1, 2], step
    torch.set_num_threads(threads)


def _normalise_all(torch, norm, images):
    """Read and write what the caches of a processor hold, as the layers of a network do."""
    for image in images:
        torch.relu_(norm(image))


def _small_layers(torch):
    """A network that has next to nothing to compute."""
    layers = torch.nn.Sequential()
    for _ in range(16):
        layers.append(torch.nn.Conv2d(16, 16, 3, padding=1, bias=False))
        layers.append(torch.nn.BatchNorm2d(16))
        layers.append(torch.nn.ReLU(inplace=True))
    return layers.eval()


def _without_grad(torch, call, *inputs):
    with torch.no_grad():
        return call(*inputs)


def matmul(torch, device, wait, dtype, size, request, progress, agree):
    """A square matrix product; TF32 only where it is asked for by name."""
    kinds = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
    kinds.update(fp16=torch.float16, fp64=torch.float64)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    a = torch.rand(size, size, device=device).to(kinds[dtype])
    b = torch.rand(size, size, device=device).to(kinds[dtype])
    out = torch.empty_like(a)
    step = partial(torch.mm, a, b, out=out)
    timing = time_steps(step, wait, request["timing"], progress, agree)
    return dict(timing, name="MATMUL", dtype=dtype, shape=[1, size, size, size],
                flop=2 * size**3, moved_bytes=3 * size * size * a.element_size())  # fmt: skip


def memory(torch, device, wait, request, progress):
    """A triad: two streams read, one written."""
    count = request["memory_elements"]
    a, b = torch.rand(count, device=device), torch.rand(count, device=device)
    out = torch.empty_like(a)
    step = partial(torch.add, a, b, alpha=3.0, out=out)
    timing = time_steps(step, wait, request["timing"], progress)
    return dict(timing, name="ELEMENTWISE", dtype="fp32", shape=[count, 1, 3],
                flop=2 * count, moved_bytes=12 * count)  # fmt: skip


def fresh(torch, device, wait, request, progress):
    """Fill memory that was allocated for it: on a CPU every page of it is handed out anew."""
    count = request["memory_elements"]
    step = partial(torch.zeros, count, device=device)
    timing = time_steps(step, wait, request["timing"], progress)
    return dict(timing, name="ELEMENTWISE", dtype="fp32", shape=[count, 1, 1], note="fresh",
                flop=0, moved_bytes=4 * count)  # fmt: skip


def launch(torch, device, wait, request, progress):
    """An op with next to nothing to do: what dispatching one costs."""
    a = torch.zeros(16, device=device)
    out = torch.empty_like(a)
    step = partial(torch.add, a, a, out=out)
    timing = time_steps(step, wait, request["timing"], progress)
    return dict(timing, name="ELEMENTWISE", dtype="fp32", shape=[16, 1, 2],
                flop=16, moved_bytes=192)  # fmt: skip


def copy(torch, wait, is_pinned, request, progress):
    """Host to device, from pinned or from pageable memory."""
    count = request["memory_elements"]
    host = torch.empty(count, pin_memory=is_pinned)
    device = torch.empty(count, device="cuda")
    step = partial(device.copy_, host, non_blocking=is_pinned)
    timing = time_steps(step, wait, request["timing"], progress)
    kind = "pinned" if is_pinned else "pageable"
    return dict(timing, name="HOST_COPY", dtype="fp32", shape=[count, 1, 1], note=kind,
                flop=0, moved_bytes=4 * count)  # fmt: skip


def together(torch, request, progress):
    """A product on all ranks at once, then collectives by message; rank 0 decides when to stop."""
    is_cuda = request["device"] == "cuda"
    rank = int(os.environ["LOCAL_RANK"])
    distributed = torch.distributed
    if is_cuda:
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if is_cuda else "gloo")
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    place = torch.device("cuda", rank) if is_cuda else torch.device("cpu")

    def agree(value):
        """What the first rank says, on all."""
        tensor = torch.tensor([float(value)], device=place)
        distributed.broadcast(tensor, 0)
        return int(tensor.item())

    size = request["matmul_sizes"][-1]
    yield matmul(torch, place, wait, "fp32", size, request, progress, agree)
    for name, note, num_bytes, step in transfers(torch, place, size, request["message_bytes"]):
        timing = time_steps(step, wait, request["timing"], progress, agree)
        shape = [num_bytes, size] if note else [num_bytes]
        yield dict(timing, name=name, dtype="fp32", shape=shape, note=note,
                   flop=0, moved_bytes=num_bytes)  # fmt: skip
    distributed.destroy_process_group()


def transfers(torch, place, size, message_bytes):
    """All-reduce by message, the others of the largest, then an all-reduce behind a product.

    Yields name, note, bytes of the whole message and what is timed.
    """
    distributed, ranks = torch.distributed, torch.distributed.get_world_size()
    for num_bytes in message_bytes:
        whole = torch.zeros(num_bytes // 4 // ranks * ranks, device=place)
        other, part = torch.empty_like(whole), torch.zeros(whole.numel() // ranks, device=place)
        yield "ALL_REDUCE", "", num_bytes, partial(distributed.all_reduce, whole)
        if num_bytes < max(message_bytes) // 4:
            continue
        yield "ALL_GATHER", "", num_bytes, partial(gather_single(distributed), other, part)
        yield "REDUCE_SCATTER", "", num_bytes, partial(scatter_single(distributed), part, whole)
        yield "ALL_TO_ALL", "", num_bytes, partial(distributed.all_to_all_single, other, whole)
        yield "BROADCAST", "", num_bytes, partial(distributed.broadcast, whole, 0)
    a, b = torch.rand(size, size, device=place), torch.rand(size, size, device=place)
    out = torch.empty_like(a)

    def behind():
        work = distributed.all_reduce(whole, async_op=True)
        torch.mm(a, b, out=out)
        work.wait()

    yield "ALL_REDUCE", "behind a product", num_bytes, behind


def gather_single(distributed):
    """All-gather of one tensor, by the name that this release has for it."""
    return getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor


def scatter_single(distributed):
    """Likewise reduce-scatter."""
    return getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor


if __name__ == "__main__":
    main(serve)
