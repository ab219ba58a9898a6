"""Compiled tables are put right where their source says otherwise, and only there."""

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("scipy")


@pytest.fixture
def table(tmp_path, monkeypatch):
    from fit import published

    wrong = tmp_path / "wrong.csv"
    wrong.write_text(
        "table,first,last,column,compiled,published,source\nt,1,2,precision,fp32,fp16,x\n"
    )
    monkeypatch.setattr(published, "CORRECTIONS", wrong)

    def read(*precisions):
        rows = pd.DataFrame({"precision": precisions, "throughput": range(len(precisions))})
        rows.to_csv(tmp_path / "t.csv", index=False)
        return published.read_published(tmp_path, "t", dtype=str)

    return read


def test_only_the_rows_named_change(table):
    rows = table("fp32", "fp32", "fp32", "fp32")
    assert rows.precision.tolist() == ["fp32", "fp16", "fp16", "fp32"]
    assert rows.throughput.tolist() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("precisions", [("fp32", "fp16", "fp32"), ("fp32", "fp32")])
def test_a_table_compiled_anew_is_refused(table, precisions):
    with pytest.raises(ValueError, match="no longer say fp32"):
        table(*precisions)
