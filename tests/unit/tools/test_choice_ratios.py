"""T12: what the steps of a measured GPU teach changes that GPU's side of a ratio alone."""

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("torch")

SEEN, HELD = "Tesla_V100", "NVIDIA_L4"


def choose(ends):
    from accuracy.operator_tests import test_choice

    return test_choice(ends)


def _ends(seen_off: float, unseen_off: float = 1.0):
    """Steps of three models on two GPUs, each off by one factor."""
    rows = [
        {"device": device, "model": model, "mode": "inf", "seqlen": 512, "model_batch": 8,
         "measured_e2e_ms": 10.0 * number, "own_s": 0.01 * number * off,
         "pred_neusight_e2e_ms": 10.0, "pred_roofline_e2e_ms": 5.0}
        for number, model in enumerate(("bert", "gpt2", "opt"), start=1)
        for device, off in ((SEEN, seen_off), (HELD, unseen_off))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_gpu_off_by_one_factor_is_put_right_by_its_other_models():
    plain, taught = choose(_ends(seen_off=0.6))
    assert plain.mean == pytest.approx(100 * (1 / 0.6 - 1))
    assert taught.mean < 0.4 * plain.mean


def test_what_is_off_on_the_unseen_gpu_stays():
    plain, taught = choose(_ends(seen_off=1.0, unseen_off=0.6))
    assert taught.mean == pytest.approx(plain.mean)


def test_a_model_is_not_taught_by_itself():
    ends = _ends(seen_off=0.6)
    plain, taught = choose(ends[ends.model == "bert"])
    assert taught.mean == pytest.approx(plain.mean)


def test_pairs_of_two_seen_gpus_are_not_scored():
    ends = _ends(seen_off=0.6)
    other = ends[ends.device == SEEN].assign(device="Tesla_T4")
    assert choose(pd.concat([ends, other]))[0].num_rows == 6
