"""The peak of a real training job as PyTorch's profiler counts it, on a CPU and on a GPU."""

from __future__ import annotations

import bisect

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

NUM_STEPS = 2
#: What these take and give back within one call is scratch of the kernel, no tensor of the model.
_KERNELS = {
    "cpu": ("aten::convolution_backward",),
    "cuda": (
        "aten::convolution_backward", "aten::cudnn_convolution", "aten::_cudnn_rnn",
        "aten::_cudnn_rnn_backward", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
    ),
}  # fmt: skip


def peak_bytes(
    build, inputs, loss_of, make_optimizer, device="cpu", num_microbatches=1, holds_results=True
):
    """Peak of live bytes from before the model is built, over two training steps.

    Args:
        build: Makes the model.
        inputs: Makes the inputs, on every step.
        loss_of: Loss of (output, inputs).
        make_optimizer: Optimizer of the model's parameters.
        device: ``cpu`` or ``cuda``: where it runs, and whose bytes are counted.
        num_microbatches: Backward passes before each update.
        holds_results: Whether the loop keeps what the model returned, as one that names it does.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train(build, inputs, loss_of, make_optimizer, device, num_microbatches, holds_results)
    return _peak(profiler, device)


def train(build, inputs, loss_of, make_optimizer, device, num_microbatches=1, holds_results=True):
    """Two training steps; everything is given back at the end."""
    model = build().to(device).train()
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
    for _ in range(NUM_STEPS):
        for _ in range(num_microbatches):
            given = inputs().to(device)
            output = model(given)
            loss = loss_of(output, given)
            if not holds_results:
                del output
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _peak(profiler, device):
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    kernels = [
        (e.start_ns(), e.start_ns() + e.duration_ns())
        for e in events
        if e.name() in _KERNELS[device]
    ]
    counted = getattr(DeviceType, device.upper())
    changes = [
        (e.start_ns(), e.nbytes())
        for e in events
        if e.name() == "[memory]" and e.device_type() == counted
    ]
    live = peak = 0
    for num_bytes in _without_workspaces(changes, kernels):
        live += num_bytes
        peak = max(peak, live)
    return peak


def _without_workspaces(changes, kernels):
    """Changes of live bytes, less what one kernel call allocates and frees again itself."""
    kept = [num_bytes for _, num_bytes in changes]
    starts = [start for start, _ in changes]
    for begin, end in kernels:
        first, last = bisect.bisect_left(starts, begin), bisect.bisect_right(starts, end)
        for freed in range(first, last):
            for taken in range(first, freed):
                if kept[freed] < 0 and kept[taken] == -kept[freed]:
                    kept[taken] = kept[freed] = 0
    return kept
