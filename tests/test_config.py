"""Presets build, defaults exist once, and wrong settings are refused with a remedy."""

from dataclasses import dataclass, fields

import pytest

from timecycle.config import build, preset_names, propagate_config, read_preset, train_config
from timecycle.errors import SettingsError
from timecycle.propagation.settings import PropagateConfig


@dataclass(frozen=True, kw_only=True)
class Settings:
    count: int = 1
    share: float = 0.5
    flag: bool = False
    limit: float | None = 2.0
    title: str = ""


@pytest.mark.parametrize("name", preset_names("propagate"))
def test_every_propagate_preset_builds(name):
    config = propagate_config(name)
    assert isinstance(config, PropagateConfig)
    for setting, value in read_preset("propagate", name).items():
        assert getattr(config, setting) == (None if value == "none" else value)


def test_default_preset_equals_the_defaults():
    assert propagate_config() == propagate_config("default") == PropagateConfig()


@pytest.mark.parametrize("name", ["paper", "timecycle2019", "crw2020", "dino2021", "vip", "plain"])
def test_published_inference_has_no_steps_of_ours(name):
    config = propagate_config(name)
    assert (config.sharpening, config.older_frames, config.target_weight, config.subcells) == (1, 0, 0, 1)
    assert config.guided_filter is False
    assert config.enlarge == 1


@pytest.mark.parametrize("name", ["fast", "best"])
def test_fast_and_best_differ_from_default_in_sizes_only(name):
    default, other = propagate_config("default"), propagate_config(name)
    sizes = {"image_size_px", "enlarge", "window_px", "anchor_window_px"}
    assert {f.name for f in fields(other) if getattr(other, f.name) != getattr(default, f.name)} <= sizes
    # The window covers the same share of the image.
    assert other.window_px / other.image_size_px == default.window_px / default.image_size_px


def test_presets_of_the_paper_exist():
    assert {"default", "fast", "best", "paper", "timecycle2019"} <= set(preset_names("propagate"))
    paper = propagate_config("paper")
    assert (paper.past_frames, paper.neighbours, paper.temperature) == (7, 5, 1)
    assert paper.window_px is None


@pytest.mark.parametrize("pair", ["window_px=none", "window_px=None", "window-px = NONE"])
def test_none_is_accepted_by_optional_settings(pair):
    assert propagate_config(overrides=[pair]).window_px is None


def test_none_is_refused_by_required_settings():
    with pytest.raises(SettingsError, match="past_frames is 'none'; give a value of type int"):
        propagate_config(overrides=["past_frames=none"])


def test_overrides_change_only_their_setting_and_the_last_one_wins():
    config = propagate_config("paper", ["neighbours=3", "temperature=2e-1", "square=True", "neighbours=4"])
    assert (config.neighbours, config.temperature, config.square) == (4, 0.2, True)
    assert config.past_frames == propagate_config("paper").past_frames


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("neighbors", "neighbours"), ("window", "window_px"), ("past_frame", "past_frames")],
)
def test_unknown_setting_suggests_the_closest_one(wrong, right):
    with pytest.raises(SettingsError, match=f"unknown setting '{wrong}' for PropagateConfig; did you mean '{right}'"):
        propagate_config(overrides=[f"{wrong}=3"])


def test_unknown_setting_without_a_close_name_lists_all():
    names = ", ".join(field.name for field in fields(PropagateConfig))
    with pytest.raises(SettingsError, match=f"unknown setting 'qqq' for PropagateConfig; the settings are {names}"):
        propagate_config(overrides=["qqq=1"])


def test_unknown_preset_lists_the_existing_ones():
    with pytest.raises(SettingsError, match="there is no propagate preset 'papre'; did you mean paper"):
        propagate_config("papre")


def test_preset_is_never_a_path():
    with pytest.raises(SettingsError, match="there is no propagate preset"):
        propagate_config("../propagate/paper")


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ("past_frames=seven", "past_frames is 'seven'; give a value of type int"),
        ("past_frames=7.5", "past_frames is '7.5'; give a value of type int"),
        ("temperature=warm", "temperature is 'warm'; give a value of type float"),
        ("square=1", "square is '1'; give a value of type bool"),
        ("neighbours=", "neighbours is ''; give a value of type int"),
        ("temperature=0", "temperature is 0.0; set temperature to a finite number above 0"),
        ("temperature=nan", "temperature is nan; set temperature to a finite number above 0"),
        ("window_px=1e308", "window_px is 1e+308; set window_px to 1000000 at most"),
        ("neighbours=100000000", "neighbours is 100000000; set neighbours to 10000 at most"),
        ("temperature=1e-30", "temperature is 1e-30; set it to 1e-06 or more"),
        ("window_px=inf", "window_px is inf; set window_px to a finite number above 0"),
        ("window_px=-3", "window_px is -3.0; set window_px to a finite number above 0"),
        ("past_frames=-1", "past_frames is -1; set past_frames to 0 or more"),
        ("weighting=all", "weighting is 'all'; choose one of joint, per_reference"),
        ("neighbours", "'neighbours' is not a setting; write NAME=VALUE, for example neighbours=5"),
    ],
)
def test_wrong_value_is_refused_with_a_remedy(pair, text):
    with pytest.raises(SettingsError) as caught:
        propagate_config(overrides=[pair])
    assert str(caught.value) == text


def test_integer_beyond_float_range_is_refused():
    with pytest.raises(SettingsError, match=r"temperature is 10+; give a value of type float"):
        build(PropagateConfig, {"temperature": 10**400})


def test_values_may_be_text_or_of_their_type():
    built = build(Settings, {"count": 3, "share": "1e-3", "flag": "TRUE", "limit": 4, "title": "none"})
    assert built == Settings(count=3, share=0.001, flag=True, limit=4.0, title="none")
    assert isinstance(built.limit, float)
    assert build(Settings, {}) == Settings()
    assert build(Settings, {"limit": None}).limit is None


@pytest.mark.parametrize(
    "values",
    [{"count": 7.5}, {"count": 7.0}, {"count": True}, {"share": True}, {"flag": 1}, {"count": [1]}, {"share": None}],
)
def test_values_of_another_type_are_never_converted(values):
    with pytest.raises(SettingsError, match="give a value of type"):
        build(Settings, values)


@pytest.mark.parametrize("pair", ["clips.gap_seconds=0.1,0.5", "clips.gap_seconds=[0.1, 0.5]"])
def test_pairs_are_written_with_commas_and_optional_brackets(pair):
    assert train_config("small", [pair]).clips.gap_seconds == (0.1, 0.5)


@pytest.mark.parametrize(
    ("preset", "pairs", "text"),
    [
        ("small", ["view_px=400"], r"view_px is 400 and clips\.crop_px 168; views are cut out of crops"),
        ("small", ["view_px=0"], r"view_px is 0 and clips\.crop_px 168; views are cut out of crops: give at least 16"),
        ("small", ["clips.crop_px=100"], r"view_px is 128 and clips\.crop_px 100"),
        (
            "small",
            ["walks.walk=0", "walks.same_frame=0"],
            r"walks\.walk, walks\.same_frame, walks\.segments and walks\.pasted are all 0",
        ),
        ("small", ["walks.walk=-1"], r"walks\.walk is -1"),
        ("small", ["walks.temperature=0"], r"walks\.temperature is 0"),
        ("small", ["walks.dropout=1"], r"walks\.dropout is 1"),
        ("small", ["ema_decay=1"], r"ema_decay is 1"),
        ("small", ["seed=-1"], r"seed is -1"),
        ("small", ["workers=-1"], r"workers is -1"),
        ("small", ["optimizer.learning_rate=0"], r"optimizer\.learning_rate is 0"),
        ("small", ["optimizer.learning_rate=nan"], r"optimizer\.learning_rate is nan"),
        ("small", ["optimizer.beta1=1"], r"optimizer\.beta1 is 1"),
        ("small", ["optimizer.warmup_steps=-1"], r"optimizer\.warmup_steps is -1"),
        ("small", ["copy_paste.most=-1"], r"copy_paste\.most is -1"),
        ("small", ["precision=fp8"], r"precision is 'fp8'; choose one of auto, fp32, bf16, fp16"),
        (
            "small-cycles",
            ["cycles.inlier=0", "cycles.same_frame=0", "cycles.long=0", "cycles.skip=0"],
            r"are all 0; give",
        ),
        ("small-cycles", ["cycles.temperature=-1"], r"cycles\.temperature is -1"),
        ("small-cycles", ["cycles.reduction=max"], r"reduction is 'max'; choose one of mean, sum"),
        (
            "small-cycles",
            ["patches.patch_px=100"],
            r"a patch of 100 pixels turned by 45 degrees does not fit",
        ),
        ("small-cycles", ["patches.choice=any"], r"choice is 'any'; choose one of motion, uniform"),
        ("small-cycles", ["patches.patch_px=4"], r"patches\.patch_px is 4, 1 cells"),
        ("small-cycles", ["cycles.localizer.kind=release"], r"patches\.patch_px is 40, 5 cells; .* at least 49 pixels"),
        ("small", ["steps.x=3"], r"steps has no setting 'x'; set steps=VALUE"),
        (
            "small",
            ["clips.gap_seconds.low=3"],
            r"clips\.gap_seconds has no setting 'low'; set clips\.gap_seconds=VALUE",
        ),
        ("small", ["encoder=3", "encoder.last=res3"], r"encoder has no setting 'last'"),
    ],
)
def test_inconsistent_settings_are_refused_when_they_are_read(preset, pairs, text):
    with pytest.raises(SettingsError, match=text):
        train_config(preset, pairs)


@pytest.mark.parametrize("name", preset_names("train"))
def test_training_presets_build_and_set_only_what_their_objective_uses(name):
    preset = read_preset("train", name)
    config = train_config(name)
    other = "cycles" if config.objective == "walks" else "walks"
    assert other not in preset


def test_settings_of_the_other_objective_are_not_checked():
    assert train_config("small-cycles", ["view_px=400"]).view_px == 400
    assert train_config("small", ["patches.patch_px=300"]).patches.patch_px == 300
