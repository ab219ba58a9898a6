"""Measure the items of a suite one after another in this process; PyTorch only.

Reads one request as JSON from stdin: ``paths`` (of engine, torch_engine and torch_worker),
``device``, ``timing``, ``deadline_s`` (of ``time.monotonic``) and ``items``. Writes one line of
JSON per item, with the ``time.monotonic`` between which it was sampled.
"""

import json
import sys
import time


def main():
    """Serve one request."""
    request = json.loads(sys.stdin.readline())
    sys.path[:0] = request["paths"]
    import torch

    software = {
        "framework_version": torch.__version__,
        "python_version": sys.version.split()[0],
        "platform_version": torch.version.cuda,
    }
    for item in request["items"]:
        if time.monotonic() > request["deadline_s"]:
            answer = {"outcome": "skipped", "reason": "the time of the suite was over"}
        else:
            answer = _attempt(torch, item, request)
        answer.update(software, number=item["number"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _attempt(torch, item, request):
    is_cuda = request["device"] == "cuda"
    try:
        answer = _measure(torch, item, request, is_cuda)
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
        is_memory = "out of memory" in str(error).lower()
        answer = {"outcome": "out-of-memory" if is_memory else "failed", "reason": text[:300]}
    if is_cuda:
        torch.cuda.empty_cache()
    return answer


def _measure(torch, item, request, is_cuda):
    import engine

    wait = torch.cuda.synchronize if is_cuda else lambda: None
    started = time.monotonic()
    step, seq = _step(torch, item, request)
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    compile_s = None
    if item.get("compiler") == "compiled":
        step()
        wait()
        compile_s = time.monotonic() - started
    marks = {}

    def progress(stage, **_):
        marks[stage] = time.monotonic()

    answer = engine.time_steps(step, wait, request["timing"], progress)
    answer.update(outcome="ok", seq=seq, compile_s=compile_s)
    answer.update(started_s=marks["measuring"], ended_s=time.monotonic())
    if is_cuda:
        answer["allocated_bytes"] = torch.cuda.max_memory_allocated()
        answer["reserved_bytes"] = torch.cuda.max_memory_reserved()
    return answer


def _step(torch, item, request):
    """What is timed, and the length of its texts; None for images and operators."""
    if item["type"] == "operator":
        make = _Tensors(torch, item, request)
        return OPERATORS[item["kind"]](torch, make, item["shape"]), None
    import torch_engine

    cell = dict(item, entry=item["name"], device=request["device"])
    if not isinstance(torch_engine.make_model, _Last):
        torch_engine.make_model = _Last(torch_engine.make_model)
    subject = torch_engine.build(torch, cell, torch_engine.Ranks(torch, cell))
    is_text = subject.kind in ("text", "language")
    return subject.step_function(item["mode"]), float(item["seq"]) if is_text else None


class _Last:
    """Makes a model once for all items of it that follow one another."""

    def __init__(self, make):
        self.make, self.name, self.made = make, None, None

    def __call__(self, torch, request, user_made):
        if request["entry"] != self.name:
            self.name, self.made = None, None
            self.made = self.make(torch, request, user_made)
            self.name = request["entry"]
        return self.made


class _Tensors:
    """Makes tensors of the dtype of one item on its device."""

    def __init__(self, torch, item, request):
        kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
        self.torch = torch
        self.dtype = kinds.get(item["dtype"], torch.float32)
        self.device = request["device"]
        torch.backends.cuda.matmul.allow_tf32 = item["dtype"] == "tf32"
        torch.backends.cudnn.allow_tf32 = item["dtype"] == "tf32"

    def __call__(self, *shape):
        return self.torch.rand(*shape, device=self.device).to(self.dtype)

    def whole(self, high, count):
        """Whole numbers below ``high``."""
        return self.torch.randint(high, (count,), device=self.device)


def matmul(torch, make, shape):
    """``(batch, m, n, k)``."""
    batch, m, n, k = shape
    if batch == 1:
        a, b = make(m, k), make(k, n)
        return lambda: torch.mm(a, b)
    a, b = make(batch, m, k), make(batch, k, n)
    return lambda: torch.bmm(a, b)


def _convolution(torch, make, shape):
    n, c, h, w, k, r, s, out_h, out_w, groups = shape
    stride, padding = (h // out_h, w // out_w), ((r - 1) // 2, (s - 1) // 2)
    last = torch.channels_last if make.dtype != torch.float32 else torch.contiguous_format
    x = make(n, c, h, w).to(memory_format=last)
    weight = make(k, c // groups, r, s).to(memory_format=last)
    return x, weight, stride, padding, groups


def conv(torch, make, shape):
    """Channels last in 16 bits."""
    x, weight, stride, padding, groups = _convolution(torch, make, shape)
    run = torch.nn.functional.conv2d
    return lambda: run(x, weight, None, stride, padding, 1, groups)


def conv_backward(mask):
    """Gradient of the input or of the weights."""

    def build(torch, make, shape):
        x, weight, stride, padding, groups = _convolution(torch, make, shape)
        out = torch.nn.functional.conv2d(x, weight, None, stride, padding, 1, groups)
        grad = torch.ones_like(out)
        run = torch.ops.aten.convolution_backward
        return lambda: run(
            grad, x, weight, None, stride, padding, (1, 1), False, (0, 0), groups, mask
        )

    return build


def attention(torch, make, shape):
    """Fused; grouped heads share keys."""
    batch, heads, kv_heads, q_len, kv_len, size, causal, _ = shape
    q, k, v = make(batch, heads, q_len, size), make(batch, kv_heads, kv_len, size), None
    v = make(batch, kv_heads, kv_len, size)
    run = torch.nn.functional.scaled_dot_product_attention
    grouped = {"enable_gqa": True} if kv_heads != heads else {}
    return lambda: run(q, k, v, is_causal=bool(causal), **grouped)


def attention_backward(torch, make, shape):
    """Of the same, from kept outputs."""
    batch, heads, kv_heads, q_len, kv_len, size, causal, _ = shape
    q = make(batch, heads, q_len, size).requires_grad_()
    k = make(batch, kv_heads, kv_len, size).requires_grad_()
    v = make(batch, kv_heads, kv_len, size).requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
    grad = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)


def elementwise(torch, make, shape):
    """Two streams: GELU; three: an addition."""
    count, _, streams = shape
    a = make(count)
    if streams == 2:
        return lambda: torch.nn.functional.gelu(a)
    b = make(count)
    return lambda: torch.add(a, b)


def norm(torch, make, shape):
    """Layer normalisation over rows."""
    count, row, _ = shape
    x, weight, bias = make(count // row, row), make(row), make(row)
    return lambda: torch.nn.functional.layer_norm(x, (row,), weight, bias)


def softmax(torch, make, shape):
    """Over rows."""
    x = make(shape[0] // shape[1], shape[1])
    return lambda: torch.softmax(x, dim=-1)


def cross_entropy(torch, make, shape):
    """Of rows of logits."""
    rows = shape[0] // shape[1]
    x, target = make(rows, shape[1]), make.whole(shape[1], rows)
    return lambda: torch.nn.functional.cross_entropy(x, target)


def embedding(torch, make, shape):
    """Rows from a table of 30,000."""
    table, rows = make(30000, shape[1]), make.whole(30000, shape[0] // shape[1])
    return lambda: torch.nn.functional.embedding(rows, table)


def pool(torch, make, shape):
    """3 × 3 maximum at stride 2 of square images of that side."""
    count, side, _ = shape
    x = make(1, count // side**2, side, side)
    return lambda: torch.nn.functional.max_pool2d(x, 3, 2, 1)


def recurrent(torch, make, shape):
    """LSTM with four gates, GRU with three."""
    batch, steps, inputs, hidden, layers, directions, gates = shape
    kind = torch.nn.LSTM if gates == 4 else torch.nn.GRU
    model = kind(inputs, hidden, layers, bidirectional=directions == 2)
    model = model.to(device=make.device, dtype=make.dtype)
    x = make(steps, batch, inputs)

    def step():
        with torch.no_grad():
            return model(x)

    return step


def optimizer(torch, make, shape):
    """AdamW as PyTorch runs it by default."""
    count, tensors, _ = shape
    parameters = [torch.nn.Parameter(make(count // tensors)) for _ in range(tensors)]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return torch.optim.AdamW(parameters, lr=0.0).step


OPERATORS = {
    "MATMUL": matmul,
    "CONV": conv,
    "CONV_BACKWARD_INPUT": conv_backward((True, False, False)),
    "CONV_BACKWARD_WEIGHT": conv_backward((False, True, False)),
    "ATTENTION": attention,
    "ATTENTION_BACKWARD": attention_backward,
    "ELEMENTWISE": elementwise,
    "NORM": norm,
    "SOFTMAX": softmax,
    "CROSS_ENTROPY": cross_entropy,
    "EMBEDDING": embedding,
    "POOL": pool,
    "RECURRENT": recurrent,
    "OPTIMIZER": optimizer,
}


if __name__ == "__main__":
    main()
