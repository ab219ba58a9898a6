"""The peak of a real training job on this CPU, as PyTorch's profiler counts it."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

NUM_STEPS = 2


def peak_bytes(build, inputs, loss_of, make_optimizer):
    """Peak of live bytes from before the model is built, over two training steps.

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
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda e: e.start_ns())
    live = peak = 0
    for event in events:
        live += event.nbytes()
        peak = max(peak, live)
    return peak
