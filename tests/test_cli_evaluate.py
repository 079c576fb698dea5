"""`timecycle evaluate` as a person meets it."""

import json

import pytest

from timecycle.cli import main
from trees import davis_tree


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("davis")
    davis_tree(folder, filmed=2)
    return folder


def run(*words) -> int:
    return main([str(word) for word in words])


def test_two_methods_are_evaluated_and_compared(root, tmp_path, capsys):
    common = (root, "--preset", "fast", "--sequences", "clip00", "clip01")
    assert run("evaluate", "davis", *common, "--encoder", "identity", "-o", tmp_path / "a") == 0
    assert run("evaluate", "davis", *common, "--encoder", "rgb", "-o", tmp_path / "b") == 0
    said = capsys.readouterr().out
    assert "identity on davis2016, 2 sequences" in said
    assert "rgb on davis2016, 2 sequences" in said
    assert "JF " in said
    assert json.loads((tmp_path / "b" / "report.json").read_text())["encoder"] == "rgb"
    assert {path.name for path in (tmp_path / "b").glob("*.png")} == {"bars.png", "over_time.png", "worst.png"}
    assert run("evaluate", "compare", tmp_path / "a", tmp_path / "b") == 0
    assert "2 sequences" in capsys.readouterr().out


def test_anyones_masks_are_scored(root, tmp_path, capsys):
    words = ("--masks", root / "Annotations" / "480p", "--sequences", "clip00", "-o", tmp_path)
    assert run("evaluate", "davis", root, *words) == 0
    assert "1.0000" in capsys.readouterr().out
    assert run("evaluate", "davis", root, *words) == 2
    assert "holds another evaluation" in capsys.readouterr().err
    assert run("evaluate", "davis", root, *words, "--overwrite") == 0
    assert "pictures beside it: bars.png, over_time.png, worst.png" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--encoder", "rgb"), ("--preset", "fast"), ("--set", "neighbours=5")])
def test_masks_are_not_predicted_so_nothing_may_say_how(root, tmp_path, capsys, words):
    masks = ("--masks", root / "Annotations" / "480p", "--sequences", "clip00", "-o", tmp_path / "out")
    assert run("evaluate", "davis", root, *masks, *words) == 2
    said = capsys.readouterr().err
    assert f"{words[0]} beside --masks: these say how to predict; with --masks nothing is predicted" in said
    assert not (tmp_path / "out").exists()


def test_only_pictures_of_this_evaluation_are_listed(root, tmp_path, capsys):
    (tmp_path / "holiday.png").write_bytes(b"")
    words = ("--gaps", "2", "1", "--stride", "2", "--sequences", "clip00", "--encoder", "identity", "-o", tmp_path)
    assert run("evaluate", "reconstruction", root, *words) == 0
    said = capsys.readouterr().out
    assert "identity on reconstruction-1-2-every-2, 1 sequence" in said
    assert said.strip().endswith("pictures beside it: bars.png")


@pytest.mark.parametrize("protocol", ["davis", "jhmdb", "vip", "badja", "reconstruction"])
def test_a_folder_that_holds_something_else_is_refused_in_one_line(protocol, tmp_path, capsys):
    assert run("evaluate", protocol, tmp_path, "-o", tmp_path / "out", "--encoder", "identity") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "  try: " in said
    assert str(tmp_path) in said
    assert not (tmp_path / "out").exists()


def test_a_report_that_is_none_is_refused(tmp_path, capsys):
    (tmp_path / "report.json").write_text("{}")
    assert run("evaluate", "compare", tmp_path, tmp_path) == 2
    assert "is not a report" in capsys.readouterr().err
