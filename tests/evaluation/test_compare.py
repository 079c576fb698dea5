"""Comparisons of two reports are paired and antisymmetric; laws of the paired bootstrap."""

import dataclasses

import numpy as np
import pytest

from reports import davis_report
from timecycle.errors import LabelError, SettingsError
from timecycle.evaluation.reporting.compare import Interval, compare, comparison_text, paired_bootstrap

A = davis_report("rgb", (0.20, 0.40, 0.60, 0.50, 0.70, 0.30))
B = davis_report("vgg16", (0.35, 0.52, 0.71, 0.58, 0.84, 0.45))


def only(comparison, score):
    return next(difference for difference in comparison.differences if difference.score == score)


def test_a_clear_gain_is_described_with_its_interval_and_the_clips():
    result = only(compare(A, B), "J")
    assert result.difference == pytest.approx(0.125)
    assert 0.08 <= result.low < result.difference < result.high <= 0.15
    assert (result.better, result.worse, result.sequences) == (6, 0, 6)
    assert (result.a, result.b) == (pytest.approx(0.45), pytest.approx(0.575))
    lines = comparison_text(compare(A, B)).splitlines()
    assert lines[0] == "davis2016: A is rgb, B is vgg16"
    assert "J 45.0 -> 57.5: B is better by 12.5 J points [" in lines[2]
    assert lines[2].endswith("] on 6 sequences (better on 6, worse on 0)")


def test_the_main_scores_are_compared_and_their_variants_are_not():
    assert [difference.score for difference in compare(A, B).differences] == ["JF", "J", "F"]


def test_swapped_reports_give_the_negated_difference():
    ab, ba = only(compare(A, B), "J"), only(compare(B, A), "J")
    assert ab.difference == pytest.approx(-ba.difference)
    assert (ab.low, ab.high) == (pytest.approx(-ba.high, abs=0.01), pytest.approx(-ba.low, abs=0.01))
    assert (ab.verdict, ba.verdict) == ("better", "worse")
    words = comparison_text(compare(B, A))
    assert "B is worse by 12.5 J points [" in words
    assert "-12" not in words  # "worse by" already has the sign


def test_a_report_does_not_differ_from_itself():
    result = compare(A, A)
    assert {difference.verdict for difference in result.differences} == {"unclear"}
    assert comparison_text(result).count("no difference that this data can show") == 3


def test_gains_and_losses_on_different_clips_are_unclear():
    mixed = davis_report("sift", (0.40, 0.20, 0.61, 0.49, 0.90, 0.12))
    assert only(compare(A, mixed), "J").verdict == "unclear"


def test_few_sequences_give_no_verdict():
    few = compare(davis_report("rgb", (0.1, 0.2)), davis_report("sift", (0.8, 0.9)))
    assert only(few, "J").verdict == "too few"
    assert "too few sequences to tell" in comparison_text(few)


def test_lower_errors_are_better():
    a, b = (
        dataclasses.replace(
            report,
            scores={"L1_5": 70.0 + shift, "L1_5_mean_of_channels": 23.0},
            per_sequence={f"c{i}": {"L1_5": 70.0 + shift + i, "L1_5_mean_of_channels": 23.0} for i in range(6)},
        )
        for report, shift in ((A, 0.0), (B, -8.0))
    )
    result = only(compare(a, b), "L1_5")
    assert (result.verdict, result.better, result.worse) == ("better", 6, 0)
    assert result.difference == pytest.approx(-8)
    assert "B is better by 8.0 L1, 5 frames (lower is better) [8.0, 8.0] on 6 sequences" in comparison_text(
        compare(a, b)
    )
    assert only(compare(b, a), "L1_5").verdict == "worse"


def test_clips_are_weighted_by_their_number_of_objects():
    def with_objects(report):
        clips = {name: {**clip, "objects": 1 + 3 * (name == "clip-0")} for name, clip in report.per_sequence.items()}
        return dataclasses.replace(report, per_sequence=clips)

    gains = np.array([0.15, 0.12, 0.11, 0.08, 0.14, 0.15])
    result = only(compare(with_objects(A), with_objects(B)), "J")
    assert result.difference == pytest.approx(np.average(gains, weights=[4, 1, 1, 1, 1, 1]))


def test_clips_without_a_score_are_left_out():
    clips = {**B.per_sequence, "clip-2": {**B.per_sequence["clip-2"], "J": float("nan")}}
    assert only(compare(A, dataclasses.replace(B, per_sequence=clips)), "J").sequences == 5


def test_a_warning_names_scores_that_are_not_means_over_clips():
    pooled = dataclasses.replace(B, scores={**B.scores, "J": 0.7})
    assert any("so J may differ" in warning for warning in compare(A, pooled).warnings)
    assert compare(A, B).warnings == ()


def test_a_warning_names_different_settings():
    (warning,) = compare(A, davis_report("rgb", neighbours=5, window_px=None)).warnings
    assert warning == "the settings differ too: neighbours 10 and 5; window_px 48.0 and None"
    elsewhere = dataclasses.replace(B, config={})
    assert compare(A, elsewhere).warnings == ("the settings of B are not known",)


def test_different_benchmarks_and_data_are_refused():
    with pytest.raises(SettingsError, match="davis2016 and vgg16 on davis2017"):
        compare(A, davis_report("vgg16", benchmark="davis2017"))
    with pytest.raises(SettingsError, match="sha256 is ab for rgb and cd for vgg16"):
        compare(A, davis_report("vgg16", sha256="cd"))


def test_shared_sequences_are_compared_with_a_warning():
    part = davis_report("vgg16", (0.35, 0.52, 0.71, 0.58, 0.84), sha256="cd")
    result = compare(A, part)
    assert result.sequences == 5
    assert "compared on the 5 of both" in result.warnings[0]
    clips = {**part.per_sequence, "clip-1": {**part.per_sequence["clip-1"], "J_per_frame": [0.5] * 9}}
    with pytest.raises(SettingsError, match="clip-1 has another number of frames"):
        compare(A, dataclasses.replace(part, per_sequence=clips))


def test_reports_without_a_common_clip_or_score_are_refused():
    renamed = {f"other-{name}": clip for name, clip in B.per_sequence.items()}
    with pytest.raises(SettingsError, match="no sequence in common"):
        compare(A, dataclasses.replace(B, per_sequence=renamed))
    with pytest.raises(SettingsError, match="share no score"):
        compare(A, dataclasses.replace(B, scores={"other": 1.0}))


@pytest.mark.parametrize("what", ["frames", "objects"])
def test_shared_clips_must_have_the_same_numbers_of_frames_and_objects(what):
    part = davis_report("vgg16", (0.35, 0.52, 0.71, 0.58, 0.84), sha256="cd")
    clips = {**part.per_sequence, "clip-1": {**part.per_sequence["clip-1"], what: 9}}
    with pytest.raises(SettingsError, match=f"clip-1 has another number of {what} for rgb than for vgg16"):
        compare(A, dataclasses.replace(part, per_sequence=clips))
    del clips["clip-1"][what]  # as in reports of older versions
    assert compare(A, dataclasses.replace(part, per_sequence=clips)).sequences == 5


def test_a_warning_names_methods_that_hide_more_joints():
    def jhmdb(encoder, counted):
        scores = {"PCK@0.1": 0.5, "counted": counted}
        return dataclasses.replace(A, encoder=encoder, scores=scores, per_sequence={f"c{i}": scores for i in range(6)})

    result = compare(jhmdb("rgb", 0.99), jhmdb("vgg16", 0.9))
    assert [difference.score for difference in result.differences] == ["PCK@0.1"]
    (warning,) = result.warnings
    assert warning.startswith("99.0 % of the joints are counted for A and 90.0 % for B: compare the scores called hid")
    assert compare(jhmdb("rgb", 0.99), jhmdb("vgg16", 0.98)).warnings == ()


def test_files_of_the_same_name_are_distinguished_by_their_checksums():
    one, other = (dataclasses.replace(davis_report("weights.safetensors"), weights_sha256=digit * 64) for digit in "12")
    assert "A is weights.safetensors (11111111), B is weights.safetensors (22222222)" in comparison_text(
        compare(one, other)
    )


a, b = np.random.default_rng(0).normal(0.5, 0.2, (2, 30))


def test_a_method_does_not_differ_from_itself():
    assert paired_bootstrap(a, a) == Interval(0, 0, 0)


def test_a_constant_gain_is_certain_however_much_sequences_differ():
    interval = paired_bootstrap(a + 0.01, a)
    assert (interval.difference, interval.low, interval.high) == pytest.approx((0.01, 0.01, 0.01))


def test_swapped_methods_give_the_negated_interval():
    ab, ba = paired_bootstrap(a, b), paired_bootstrap(b, a)
    assert (ba.difference, ba.low, ba.high) == pytest.approx((-ab.difference, -ab.high, -ab.low))


def test_the_same_seed_gives_the_same_interval():
    assert paired_bootstrap(a, b, seed=1) == paired_bootstrap(a, b, seed=1)
    assert paired_bootstrap(a, b, seed=1) != paired_bootstrap(a, b, seed=2)


def test_the_interval_is_that_of_the_mean_of_differences():
    """For 30 sequences it is close to the normal interval: 1.96 standard errors to both sides."""
    interval = paired_bootstrap(a, b, resamples=20_000)
    error = (a - b).std() / np.sqrt(len(a))
    assert interval.difference == pytest.approx((a - b).mean())
    assert interval.low == pytest.approx((a - b).mean() - 1.96 * error, abs=0.1 * error)
    assert interval.high == pytest.approx((a - b).mean() + 1.96 * error, abs=0.1 * error)


def test_a_higher_confidence_gives_a_wider_interval():
    wide, narrow = paired_bootstrap(a, b, confidence=0.99), paired_bootstrap(a, b, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_weights_give_the_mean_over_objects():
    objects = np.random.default_rng(1).integers(1, 6, 30)
    interval = paired_bootstrap(a, b, weights=objects.astype(np.float64))
    assert interval.difference == pytest.approx((np.repeat(a, objects) - np.repeat(b, objects)).mean())
    assert interval.low < interval.difference < interval.high
    assert paired_bootstrap(a, b, weights=np.full(30, 3.0)).low == pytest.approx(paired_bootstrap(a, b).low)


def test_many_sequences_are_resampled_in_batches():
    many = np.random.default_rng(2).normal(size=(2, 20_000))
    interval = paired_bootstrap(many[0], many[1], resamples=130)
    assert interval.low < interval.difference < interval.high


def test_unpaired_scores_and_bad_settings_are_refused():
    with pytest.raises(LabelError, match="30 and 29 scores with 30 weights are not pairs; score both methods"):
        paired_bootstrap(a, b[1:])
    with pytest.raises(LabelError, match="30 and 30 scores with 2 weights are not pairs"):
        paired_bootstrap(a, b, weights=np.ones(2))
    with pytest.raises(LabelError, match="a score is not a finite number, or a weight is not above 0"):
        paired_bootstrap(a, b, weights=np.zeros(30))
    with pytest.raises(LabelError, match="a score is not a finite number"):
        paired_bootstrap(a, b * np.nan)
    with pytest.raises(SettingsError, match=r"a bootstrap of 0 resamples with confidence 0\.95"):
        paired_bootstrap(a, b, resamples=0)
