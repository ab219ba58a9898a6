"""A loop on a CPU that the observer takes for a GPU: its events, its profiler, its device."""

import sys
import time
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset


class Event:
    def __init__(self, enable_timing=False):
        pass

    def record(self, stream=None):
        self.at_s = time.perf_counter()

    def elapsed_time(self, other):
        return 1e3 * (other.at_s - self.at_s)

    def synchronize(self):
        pass


class OnGpu:
    """What the profiler saw of a CPU, as of a GPU."""

    def __init__(self, seen):
        self.seen = seen

    def __getattr__(self, name):
        return getattr(self.seen, name)

    def device_type(self):
        return "DeviceType.CUDA"


torch.cuda.Event = Event
#: The host runs ahead of the GPU by so much in each step, and waits for it where it is told to.
LATE_S = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
torch.cuda.synchronize = lambda device=None: time.sleep(LATE_S)
torch.cuda.current_stream = lambda device=None: None
torch.cuda.max_memory_allocated = torch.cuda.max_memory_reserved = lambda device=None: 1
torch.cuda.get_device_capability = lambda device=None: (9, 0)
torch.cuda.is_bf16_supported = lambda: False
cpu = torch.profiler.ProfilerActivity.CPU
torch.profiler.ProfilerActivity = SimpleNamespace(CUDA=cpu)
trials = sys.modules["_paceline_torch_trials"].Trials
gpu = sys.modules["_paceline_observer"].load("torch_gpu")
plain_warm, plain_facts, plain_record = trials._warm_step, trials._facts, gpu.record


def warm_step(self, now):
    self.marks.device = SimpleNamespace(type="cuda")
    return plain_warm(self, now)


def facts(self, step_s):
    return {**plain_facts(self, step_s), "device": "cuda", "may_tf32": True, "may_bf16": False}


trials._warm_step, trials._facts = warm_step, facts
gpu.record = lambda seen, *args: plain_record(map(OnGpu, seen), *args)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(4096, 256)
is_fed = sys.argv[1] == "fed"
for epoch in range(10000):
    batches = DataLoader(TensorDataset(data), batch_size=64) if is_fed else data.split(64)
    for batch in batches:
        x = batch[0] if is_fed else batch
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
