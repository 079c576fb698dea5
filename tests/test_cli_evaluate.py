"""`timecycle evaluate` from the command line."""

import json

import pytest

from timecycle.cli import main
from trees import davis_tree


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("davis")
    davis_tree(folder, clips=2)
    return folder


def run(*words) -> int:
    return main([str(word) for word in words])


def test_two_methods_are_evaluated_and_compared(root, tmp_path, capsys):
    common = (root, "--preset", "fast", "--sequences", "clip00", "clip01")
    assert run("evaluate", "davis", *common, "--encoder", "identity", "-o", tmp_path / "a") == 0
    assert run("evaluate", "davis", *common, "--encoder", "rgb", "-o", tmp_path / "b") == 0
    output = capsys.readouterr().out
    assert "identity on davis2016, 2 sequences" in output
    assert "rgb on davis2016, 2 sequences" in output
    assert "JF " in output
    assert json.loads((tmp_path / "b" / "report.json").read_text())["encoder"] == "rgb"
    assert {path.name for path in (tmp_path / "b").glob("*.png")} == {"bars.png", "over_time.png", "worst.png"}
    assert run("evaluate", "compare", tmp_path / "a", tmp_path / "b") == 0
    assert "2 sequences" in capsys.readouterr().out


def test_masks_of_another_program_are_scored(root, tmp_path, capsys):
    words = ("--masks", root / "Annotations" / "480p", "--sequences", "clip00", "-o", tmp_path)
    assert run("evaluate", "davis", root, *words) == 0
    assert "1.0000" in capsys.readouterr().out
    assert run("evaluate", "davis", root, *words) == 2
    assert "holds another evaluation" in capsys.readouterr().err
    assert run("evaluate", "davis", root, *words, "--overwrite") == 0
    assert "pictures beside it: bars.png, over_time.png, worst.png" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--encoder", "rgb"), ("--preset", "fast"), ("--set", "neighbours=5")])
def test_settings_of_prediction_are_refused_with_masks(root, tmp_path, capsys, words):
    masks = ("--masks", root / "Annotations" / "480p", "--sequences", "clip00", "-o", tmp_path / "out")
    assert run("evaluate", "davis", root, *masks, *words) == 2
    assert f"{words[0]} cannot be combined with --masks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_only_pictures_of_this_evaluation_are_listed(root, tmp_path, capsys):
    (tmp_path / "other.png").write_bytes(b"")
    words = ("--gaps", "2", "1", "--stride", "2", "--sequences", "clip00", "--encoder", "identity", "-o", tmp_path)
    assert run("evaluate", "reconstruction", root, *words) == 0
    output = capsys.readouterr().out
    assert "identity on reconstruction-1-2-every-2, 1 sequence" in output
    assert output.strip().endswith("pictures beside it: bars.png")


@pytest.mark.parametrize("protocol", ["davis", "jhmdb", "vip", "badja", "reconstruction"])
def test_a_folder_without_the_dataset_is_refused_with_a_remedy(protocol, tmp_path, capsys):
    assert run("evaluate", protocol, tmp_path, "-o", tmp_path / "out", "--encoder", "identity") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "  try: " in error
    assert str(tmp_path) in error
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_report_is_refused(tmp_path, capsys):
    (tmp_path / "report.json").write_text("{}")
    assert run("evaluate", "compare", tmp_path, tmp_path) == 2
    assert "is not a report" in capsys.readouterr().err
