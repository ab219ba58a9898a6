"""A fit of streams on rows that fall with size gives coefficients that never do."""

import numpy as np
import pytest

from paceline.prediction.features import STREAM_FEATURES
from paceline.prediction.kernels.device_effects import NUM_LAWS, Effect

pytestmark = pytest.mark.slow

#: Log10 of sizes in steps of the root of two, over six decades.
SIZES = np.arange(-3.0, 3.0, np.log10(2.0) / 2)


def features(log10_size):
    """Features of streams of so many elements, all else equal."""
    x = np.zeros((len(log10_size), len(STREAM_FEATURES)), np.float32)
    x[:, :3] = log10_size[:, None]
    return x


def falling_rows(rng):
    """Rows that take a fourth of the time once they are ten times as large as the middle."""
    from fit.operators import Operators

    size = rng.uniform(-3, 3, 4000)
    excess = np.where(size < 0, 0.8, 0.8 - 1.6 * np.clip(size, 0, 1))
    return Operators(
        features=features(size),
        log10_slowdown=excess,
        weight=np.ones(len(size)),
        device=np.full(len(size), "card"),
    )


def log10_times(steps):
    """Log10 of fitted times over the sizes."""
    from fit.joint import fit_jointly
    from fit.options import FitOptions

    options = FitOptions(epochs=400, noise=0.0, batch_steps=64)
    rows = {"stream": falling_rows(np.random.default_rng(0))}
    weight, traits = np.ones(len(steps.step_s)), {"card": np.zeros((NUM_LAWS, len(Effect)))}
    predictor = fit_jointly(steps, rows, weight, traits, options)
    return SIZES + predictor.networks["stream"].export().log10_slowdown(features(SIZES))


@pytest.fixture
def steps():
    """One step on that card, which says nothing of streams."""
    from fit.steps import Steps

    text = {name: np.array([name]) for name in ("source", "entry", "task")}
    unset = ("backward_kernels", "is_compiled", "maturity_years", "host_years")
    none = {name: np.zeros(1) for name in unset}
    return Steps(
        rows={}, step_s=np.ones(1), forward_kernels=np.ones(1), framework=np.zeros(1, int),
        device=np.array(["card"]), index=np.zeros(1, int), is_open=np.zeros(1, bool),
        **text, **none,
    )  # fmt: skip


def test_fitted_streams_of_more_elements_are_never_faster(steps):
    assert (np.diff(log10_times(steps)) > 0).all()


def test_without_the_law_those_rows_teach_that_they_are(steps, monkeypatch):
    monkeypatch.setattr("fit.growth._LACK_WEIGHT", 0.0)
    assert np.diff(log10_times(steps)).min() < np.log10(0.98)


def test_what_grows_costs_nothing():
    import torch
    from fit.growth import growth_loss
    from fit.networks import Network
    from fit.options import FitOptions

    network = Network(features(SIZES).astype(float), FitOptions(noise=0.2)).train()
    for weight in network.weights:
        torch.nn.init.zeros_(weight)
    assert growth_loss(network, torch.from_numpy(features(SIZES))) == 0
    assert network.training
