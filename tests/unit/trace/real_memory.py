"""The peak of a real training job on this CPU, as PyTorch's profiler counts it."""

from __future__ import annotations

import bisect

from torch.profiler import ProfilerActivity, profile

NUM_STEPS = 2


def peak_bytes(build, inputs, loss_of, make_optimizer):
    """Peak of live bytes from before the model is built, over two training steps.

    Scratch that a convolution's backward kernel takes and gives back is left out: oneDNN's
    reordered copies are no tensors of the model.

    Args:
        build: Makes the model.
        inputs: Makes the inputs, on every step.
        loss_of: Loss of (output, inputs).
        make_optimizer: Optimizer of the model's parameters.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model = build().train()
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
        for _ in range(NUM_STEPS):
            _step(model, inputs, loss_of, optimizer)
        del model, optimizer
    return _peak(profiler)


def _step(model, inputs, loss_of, optimizer):
    given = inputs()
    output = model(given)
    loss = loss_of(output, given)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _peak(profiler):
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    kernels = [
        (e.start_ns(), e.start_ns() + e.duration_ns())
        for e in events
        if e.name() == "aten::convolution_backward"
    ]
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
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
