"""Published results, compared with a second transcription from the paper."""

import pytest

from published import protocols, published_rows
from timecycle.errors import SettingsError

DAVIS = {
    "Identity": (22.1, 23.6),
    "Random weights, ResNet-50": (12.4, 12.5),
    "Optical flow, FlowNet2": (26.7, 25.2),
    "SIFT Flow": (33.0, 35.0),
    "Transitive Invariance, VGG-16": (32.0, 26.8),
    "DeepCluster, VGG-16": (37.5, 33.2),
    "Video Colorization, 3D ResNet-18": (34.6, 32.7),
    "TimeCycle, ResNet-18": (40.1, 38.3),
    "TimeCycle, ResNet-50": (41.9, 39.4),
    "ImageNet, ResNet-50": (50.3, 49.0),
    "Fully supervised": (55.1, 62.1),
}
JHMDB = {
    "Identity": (43.1, 64.5),
    "Optical flow, FlowNet2": (45.2, 62.9),
    "SIFT Flow": (49.0, 68.6),
    "Transitive Invariance, VGG-16": (43.9, 67.0),
    "DeepCluster, VGG-16": (43.2, 66.9),
    "Video Colorization, 3D ResNet-18": (45.2, 69.6),
    "TimeCycle, ResNet-18": (57.3, 78.1),
    "TimeCycle, ResNet-50": (57.7, 78.5),
    "ImageNet, ResNet-50": (58.4, 78.4),
    "Fully supervised": (68.7, 92.1),
}
VIP = {
    "Identity": (13.6, 4.0),
    "Optical flow, FlowNet2": (16.1, 8.3),
    "SIFT Flow": (21.3, 10.5),
    "Transitive Invariance, VGG-16": (19.4, 5.0),
    "DeepCluster, VGG-16": (21.8, 8.1),
    "TimeCycle, ResNet-50": (28.9, 15.6),
    "ImageNet, ResNet-50": (34.7, 16.1),
    "Fully supervised": (37.9, 24.1),
}
RECONSTRUCTION = {
    "Identity": (82.0, 97.7),
    "Optical flow, FlowNet2": (62.4, 90.3),
    "ImageNet, ResNet-50": (64.0, 79.2),
    "TimeCycle, ResNet-50": (60.4, 76.4),
}


@pytest.mark.parametrize(
    ("protocol", "names", "expected"),
    [
        ("davis2017", ("J", "F"), DAVIS),
        ("jhmdb", ("PCK@0.1", "PCK@0.2"), JHMDB),
        ("vip", ("mIoU", "AP_vol"), VIP),
        ("reconstruction", ("L1_5", "L1_10"), RECONSTRUCTION),
    ],
)
def test_published_tables_equal_those_of_the_paper(protocol, names, expected):
    rows = published_rows(protocol, group="paper")
    assert {row.method: tuple(row.scores[name] for name in names) for row in rows} == expected


def test_published_ablations_equal_those_of_the_paper():
    rows = {
        row.method.partition(": ")[2]: (row.scores["J"], row.scores["F"]) for row in published_rows(group="ablation")
    }
    assert rows == {
        "without skip cycles": (39.5, 37.9),
        "1 nearest neighbour": (41.0, 38.9),
        "10 nearest neighbours": (41.5, 39.1),
        "20 nearest neighbours": (40.8, 38.5),
        "trained on Kinetics": (42.5, 39.2),
        "fine-tuned on DAVIS train": (42.0, 39.1),
    }


def test_published_thresholds_of_part_instances_equal_those_of_the_paper():
    rows = {row.method: row.scores for row in published_rows("vip")}
    names = ("AP_0.3", "AP_0.5", "AP_0.7")
    assert [rows["TimeCycle, ResNet-50"][name] for name in names] == [23.0, 12.7, 5.4]
    assert [rows["ImageNet, ResNet-50"][name] for name in names] == [24.2, 11.9, 4.8]


def test_the_mean_of_j_and_f_is_rounded_as_in_print():
    rows = {row.method: row for row in published_rows("davis2017", group="paper")}
    assert rows["TimeCycle, ResNet-50"].score("JF") == 40.7  # of 40.65
    assert rows["TimeCycle, ResNet-18"].score("JF") == 39.2
    assert rows["TimeCycle, ResNet-50"].score("mIoU") is None


def test_a_published_mean_is_kept_and_agrees_with_j_and_f():
    rows = [row for row in published_rows("davis2017", group="later") if "JF" in row.scores]
    assert len(rows) >= 5
    for row in rows:
        assert row.score("JF") == row.scores["JF"]
        assert row.scores["JF"] == pytest.approx((row.scores["J"] + row.scores["F"]) / 2, abs=0.06)


def test_every_row_has_a_source_a_protocol_and_inference_settings():
    rows = published_rows()
    assert len(rows) > 45
    for row in rows:
        assert row.source.cite[-4:].isdecimal(), row.method
        assert row.source.url.startswith("https://"), row.method
        assert row.protocol in protocols(), row.method
        assert row.inference, row.method
        assert row.place, row.method
    assert len({(row.method, row.protocol) for row in rows}) == len(rows)


def test_rows_not_checked_at_their_source_are_marked():
    unchecked = {row.method for row in published_rows() if not row.checked}
    assert unchecked == {"MAST, ResNet-18", "DINO, ViT-B/8", "LIIR, ResNet-18"}


def test_unknown_protocols_are_refused():
    with pytest.raises(SettingsError, match="there is no protocol 'davis'"):
        published_rows("davis")
