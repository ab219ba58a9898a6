"""A TOML file may hold dates: they are read as their text, and a wrong file is said to be wrong."""

from paceline.app.main import main


def test_a_date_in_a_file_of_another_kind_is_no_accident(tmp_path, capsys):
    path = tmp_path / "lab.toml"
    path.write_text('[[devices]]\nname = "X"\nread_on = 2026-11-01\n', encoding="utf-8")
    assert main(["own", str(path)]) == 2
    told = capsys.readouterr().err
    assert "purchase file is wrong" in told
    assert "Traceback" not in told
