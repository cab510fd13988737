from everlong.recipes import arms
from everlong.recipes._command import start


def test_bad_input_is_one_line_and_the_exit_code_of_everlong(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["arms", "--output", str(tmp_path / "run"), "--arms", "prayer"])
    assert start(arms.main, arms.ArmsRecipe) == 2
    assert capsys.readouterr().err.startswith("everlong: --arms prayer is unknown; known: ladder")
