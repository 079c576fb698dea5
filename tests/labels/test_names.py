"""Names of objects: from the command line, from a names.json, and invalid ones."""

import json

import pytest

from timecycle.errors import LabelError
from timecycle.labels import Keypoints, Masks, Parts
from timecycle.labels.names import check_names, names_beside, names_of, parse_names


def test_names_are_parsed_by_object_number():
    assert parse_names(["1=camel", "007= the rider "]) == {"1": "camel", "7": "the rider"}
    assert parse_names(["2=a=b"]) == {"2": "a=b"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["camel"], "'camel' names no object"),
        (["x=camel"], "'x' is not the number of an object"),
        (["1="], "object 1 cannot be called ''"),
        (["1=a\x1b[31m"], "object 1 cannot be called"),
        (["1=" + "x" * 101], "object 1 cannot be called"),
        (["1=camel", "1=dog"], "object 1 is named twice"),
        (["1=camel", "2=camel"], "two objects are called 'camel'"),
    ],
)
def test_invalid_names_are_refused(words, problem):
    with pytest.raises(LabelError) as refused:
        parse_names(words)
    assert problem in refused.value.problem
    assert refused.value.remedy


def test_names_json_in_the_folder_of_a_mask_names_its_objects(tmp_path):
    (tmp_path / "names.json").write_text(json.dumps({"1": "camel", "9": "elsewhere"}))
    assert names_beside([tmp_path / "first.png"]) == names_beside([tmp_path]) == {"1": "camel", "9": "elsewhere"}
    assert names_beside([tmp_path / "sub" / "first.png"]) == {}


@pytest.mark.parametrize("text", ["[1]", "{", '{"1": 2}', '{"a": "b"}', "\x00"])
def test_error_for_an_invalid_names_json_names_the_file(tmp_path, text):
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(LabelError, match=r"names\.json"):
        names_beside([tmp_path / "first.png"])


def test_names_by_hand_override_the_file_and_must_be_of_labelled_objects():
    assert names_of(["1", "2"], {"1": "dog", "5": "fence"}, {"1": "camel"}) == {"1": "camel"}
    with pytest.raises(LabelError, match=r"there is no object 3 to call 'x'; name one of .* labelled: 1, 2"):
        names_of(["1", "2"], {}, {"3": "x"})


def test_display_name_of_an_unnamed_object_is_its_number():
    assert Masks.display_name("255", {}) == "object 255"
    assert Masks.display_name("255", {"255": "camel"}) == "camel"
    assert Parts.display_name("3001", {}) == "part 3001"
    assert Keypoints.display_name("nose", {}) == "nose"
    assert check_names({1: "camel"}) == {"1": "camel"}
