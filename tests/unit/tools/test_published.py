"""Compiled tables are put right where their source says otherwise, and only there."""

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("scipy")


@pytest.fixture
def table(tmp_path, monkeypatch):
    from fit import published

    wrong = tmp_path / "wrong.csv"
    wrong.write_text(
        "table,first,last,unless_model,column,compiled,published,source\n"
        "t,1,3,kept,precision,fp32,fp16,x\n"
    )
    monkeypatch.setattr(published, "CORRECTIONS", wrong)

    def read(*precisions):
        models = ["a", "a", "kept", "b", "b"][: len(precisions)]
        rows = pd.DataFrame({"model": models, "precision": precisions})
        rows.to_csv(tmp_path / "t.csv", index=False)
        return published.read_published(tmp_path, "t", dtype=str)

    return read


def test_only_the_rows_named_change(table):
    rows = table("fp32", "fp32", "fp32", "fp32", "fp32")
    assert rows.precision.tolist() == ["fp32", "fp16", "fp32", "fp16", "fp32"]
    assert rows.model.tolist() == ["a", "a", "kept", "b", "b"]


@pytest.mark.parametrize("precisions", [("fp32", "fp16", "fp32", "fp32"), ("fp32", "fp32")])
def test_a_table_compiled_anew_is_refused(table, precisions):
    with pytest.raises(ValueError, match="no longer say fp32"):
        table(*precisions)
