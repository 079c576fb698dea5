"""The synthetic world, whose ground truth other tests rely on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timecycle.errors import SettingsError, VideoError
from timecycle.synthetic import World, WorldConfig, make_world, surface_descriptors, tiled_mask


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(WorldConfig())


@pytest.fixture(scope="module")
def areas(world: World) -> np.ndarray:
    """Return the visible area of each object (columns) in each frame (rows)."""
    return np.array([np.bincount(world.mask(t).ravel(), minlength=len(world.ids) + 1)[1:] for t in range(len(world))])


configs = st.builds(
    WorldConfig,
    height_px=st.integers(48, 100),
    width_px=st.integers(48, 140),
    frames=st.integers(1, 60),
    objects=st.integers(1, 7),
    seed=st.integers(0, 1000),
    camera_px_per_frame=st.sampled_from((0.0, 0.5, 3.0)),
    static=st.booleans(),
)


def pixel_grid(world: World) -> np.ndarray:
    height, width = world.config.height_px, world.config.width_px
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)


def sample_linearly(image: np.ndarray, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate an image (h, w, c); also return where all four neighbours exist and agree on channel 0."""
    height, width, _ = image.shape
    left, top = np.floor(xy).astype(int).T
    valid = (left >= 0) & (top >= 0) & (left + 1 < width) & (top + 1 < height)
    left, top = np.clip(left, 0, width - 2), np.clip(top, 0, height - 2)
    right, down = (xy - np.stack((left, top), axis=-1)).T[..., None]
    corners = image[[top, top, top + 1, top + 1], [left, left + 1, left, left + 1]]
    upper = corners[0] * (1 - right) + corners[1] * right
    lower = corners[2] * (1 - right) + corners[3] * right
    valid &= (corners[..., 0] == corners[0, :, 0]).all(axis=0)
    return upper * (1 - down) + lower * down, valid


# Determinism


def test_frame_depends_on_settings_and_number_alone(world: World) -> None:
    again = make_world(WorldConfig())
    backwards = [again.frame(t) for t in reversed(range(len(again)))][::-1]
    np.testing.assert_array_equal(world.video(), backwards)


def test_frames_are_those_of_the_video(world: World) -> None:
    streamed = np.stack(list(world.frames()))
    assert streamed.shape == (40, 120, 160, 3)
    assert streamed.dtype == np.uint8
    np.testing.assert_array_equal(streamed, world.video())


def test_seeds_give_different_worlds(world: World) -> None:
    assert (make_world(WorldConfig(seed=1)).frame(0) != world.frame(0)).mean() > 0.5


def test_static_world_repeats_the_first_frame_of_the_moving_one(world: World) -> None:
    static = make_world(WorldConfig(static=True))
    for t in (0, 17, 39):
        np.testing.assert_array_equal(static.frame(t), world.frame(0))
    assert not static.flow(3, 30).displacement.any()
    assert static.flow(3, 30).visible.all()


def test_background_does_not_move_under_a_static_camera() -> None:
    static = make_world(WorldConfig(camera_px_per_frame=0.0))
    background = static.mask(5) == 0
    assert not static.flow(5, 30).displacement[background].any()


def test_camera_moves_at_the_configured_speed() -> None:
    panned = make_world(WorldConfig(camera_px_per_frame=0.7))
    background = panned.mask(20) == 0
    steps = panned.flow(20, 21).displacement[background]
    np.testing.assert_allclose(np.hypot(*steps.T), 0.7, atol=0.01)


def test_any_frame_of_a_long_clip_can_be_rendered() -> None:
    long = make_world(WorldConfig(height_px=48, width_px=64, frames=100_000))
    assert long.frame(99_999).shape == (48, 64, 3)
    assert np.abs(long.flow(50_000, 50_001).displacement).max() < 1


# Events


def test_object_1_is_hidden_for_a_while_and_reappears(areas: np.ndarray) -> None:
    hidden = np.flatnonzero(areas[:, 0] == 0)
    assert len(hidden) >= 4
    assert (np.diff(hidden) == 1).all()
    assert areas[0, 0] > 500
    assert areas[-1, 0] > 500


def test_object_2_leaves_for_good(areas: np.ndarray) -> None:
    assert (areas[:25, 1] > 1000).all()
    assert (areas[-5:, 1] == 0).all()


def test_object_3_is_outside_at_first_and_enters(areas: np.ndarray) -> None:
    assert (areas[:18, 2] == 0).all()
    assert (areas[-5:, 2] > 500).all()


@pytest.mark.parametrize("size", [(48, 64), (64, 48), (240, 427)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_events_happen_at_every_size_and_seed(size: tuple[int, int], seed: int) -> None:
    world = make_world(WorldConfig(height_px=size[0], width_px=size[1], objects=6, seed=seed))
    visible = [set(np.unique(world.mask(t))) for t in (0, 16, 39)]
    assert visible[0] == {0, 1, 2, 4, 5, 6}
    assert {1, 2, 3} & visible[1] == {2}
    assert {1, 2, 3} & visible[2] == {1, 3}


@pytest.mark.parametrize("objects", [1, 2, 3, 6])
def test_object_ids_start_at_one(objects: int) -> None:
    world = make_world(WorldConfig(height_px=48, width_px=64, objects=objects))
    assert world.ids == tuple(range(1, objects + 1))
    assert set(np.unique(world.mask(0))) <= {0, *world.ids}
    assert len(world.keypoints(0).names) == 5 * objects


# Ground truth


@given(config=configs, data=st.data())
@settings(max_examples=25, deadline=None)
def test_masks_surface_keypoints_and_flow_agree(config: WorldConfig, data: st.DataObject) -> None:
    world = make_world(config)
    s, t = (data.draw(st.integers(0, len(world) - 1)) for _ in "st")
    mask, surface, points = world.mask(t), world.surface(t), world.keypoints(t)
    assert world.frame(t).shape == (config.height_px, config.width_px, 3)
    assert mask.dtype == np.uint16
    np.testing.assert_array_equal(mask, surface[..., 0])

    owners = np.repeat(world.ids, 5)[points.visible]
    x, y = np.rint(points.xy[points.visible]).astype(int).T
    np.testing.assert_array_equal(mask[y, x], owners)

    rest = world.flow(t, t)
    assert not rest.displacement.any()
    assert rest.visible.all()
    assert not world.flow(s, t).visible[~np.isin(world.mask(s), mask)].any()


@pytest.mark.parametrize(("s", "t"), [(0, 8), (8, 0), (26, 27), (27, 24), (0, 39)])
def test_flow_points_to_the_same_surface_point(world: World, s: int, t: int) -> None:
    flow = world.flow(s, t)
    source = world.surface(s)
    target = (pixel_grid(world) + flow.displacement)[flow.visible]
    sampled, valid = sample_linearly(world.surface(t), target)
    assert valid.mean() > 0.9
    np.testing.assert_allclose(sampled[valid], source[flow.visible][valid], atol=2e-3)


@pytest.mark.parametrize(("s", "t"), [(0, 8), (26, 27)])
def test_flow_points_to_the_same_colour(world: World, s: int, t: int) -> None:
    flow = world.flow(s, t)
    target = (pixel_grid(world) + flow.displacement)[flow.visible]
    labelled = np.concatenate((world.mask(t)[..., None], world.frame(t)), axis=-1).astype(float)
    sampled, valid = sample_linearly(labelled, target)
    error = np.abs(sampled[:, 1:] - world.frame(s)[flow.visible])[valid]
    assert error.mean() < 1  # grey levels; interpolating twice blurs a little


def test_flow_to_a_hidden_object_is_not_visible(world: World) -> None:
    disc = world.mask(0) == 1
    behind = world.flow(0, 16)
    assert not behind.visible[disc].any()
    back = world.flow(0, 39)
    assert back.visible[disc].mean() > 0.95


def test_flow_of_an_unoccluded_object_stays_visible(world: World) -> None:
    box = world.mask(0) == 2
    assert world.flow(0, 22).visible[box].mean() > 0.97


def test_forward_and_backward_flow_cancel(world: World) -> None:
    forward = world.flow(2, 6).displacement
    backward = world.flow(6, 2).displacement
    target = pixel_grid(world) + forward
    shown = world.flow(2, 6).visible
    labelled = np.concatenate((world.mask(6)[..., None], backward), axis=-1)
    sampled, valid = sample_linearly(labelled, target[shown])
    np.testing.assert_allclose(sampled[valid, 1:], -forward[shown][valid], atol=1e-3)


def test_keypoints_stay_on_their_surface_points(world: World) -> None:
    for t in (0, 8, 30):
        points = world.keypoints(t)
        surface, valid = sample_linearly(world.surface(t), points.xy)
        on_surface = points.visible & valid
        start = world.keypoints(0)
        at_start, valid_at_start = sample_linearly(world.surface(0), start.xy)
        both = on_surface & start.visible & valid_at_start
        assert both.sum() >= 5
        np.testing.assert_allclose(surface[both], at_start[both], atol=2e-3)


def test_keypoints_are_visible_only_with_their_object(world: World) -> None:
    visible = np.array([world.keypoints(t).visible.reshape(3, 5).all(axis=1) for t in (0, 16, 39)])
    np.testing.assert_array_equal(visible, [[True, True, False], [False, True, False], [True, False, True]])


def test_mirrored_world_has_mirrored_ground_truth(world: World) -> None:
    mirror = world.mirrored()
    np.testing.assert_array_equal(mirror.frame(8), world.frame(8)[:, ::-1])
    np.testing.assert_array_equal(mirror.mask(8), world.mask(8)[:, ::-1])
    np.testing.assert_array_equal(mirror.surface(8), world.surface(8)[:, ::-1])
    np.testing.assert_array_equal(mirror.flow(8, 27).visible, world.flow(8, 27).visible[:, ::-1])
    np.testing.assert_array_equal(mirror.flow(8, 27).displacement, world.flow(8, 27).displacement[:, ::-1] * (-1, 1))
    np.testing.assert_array_equal(
        mirror.keypoints(8).xy, world.keypoints(8).xy * np.float32((-1, 1)) + np.float32((159, 0))
    )
    np.testing.assert_array_equal(mirror.keypoints(8).visible, world.keypoints(8).visible)
    np.testing.assert_array_equal(mirror.mirrored().frame(8), world.frame(8))


# Descriptors


def test_descriptor_is_most_similar_to_its_own_point(world: World) -> None:
    surface = world.surface(8)[2::4, 2::4]
    descriptors = surface_descriptors(surface).reshape(64, -1)
    products = descriptors.T @ descriptors
    np.testing.assert_allclose(np.diag(products), 1, atol=1e-5)
    np.testing.assert_array_equal(products.argmax(axis=1), np.arange(len(products)))
    layers = surface[..., 0].ravel()
    assert np.abs(products[layers[:, None] != layers]).mean() < 0.15


def test_same_coordinates_on_two_layers_have_different_descriptors() -> None:
    surface = np.zeros((4, 50, 3), np.float32)
    surface[..., 0] = np.arange(4)[:, None]
    surface[..., 1] = np.linspace(-30, 30, 50)
    descriptors = surface_descriptors(surface)
    across = np.einsum("ciw,cjw->ijw", descriptors, descriptors)
    assert np.abs(across[~np.eye(4, dtype=bool)]).max() < 0.6


@pytest.mark.parametrize("direction", [(1, 0), (0, 1), (0.6, -0.8)])
def test_similarity_of_descriptors_falls_with_distance_as_a_gaussian(direction: tuple[float, float]) -> None:
    distance = np.arange(0, 17)
    line = np.zeros((1, 17, 3), np.float32)
    line[..., 1:] = np.multiply.outer(distance, direction)
    descriptors = surface_descriptors(line, channels=256, length_px=8.0)[:, 0]
    products = descriptors[:, 0] @ descriptors
    assert (np.diff(products) < 0).all()
    np.testing.assert_allclose(products, np.exp(-(distance**2) / 128), atol=0.08)


def test_mirrored_surface_has_mirrored_descriptors_and_seeds_differ(world: World) -> None:
    straight = surface_descriptors(world.surface(8), channels=16)
    mirrored = surface_descriptors(world.mirrored().surface(8), channels=16)
    np.testing.assert_array_equal(mirrored, straight[..., ::-1])
    assert not np.allclose(surface_descriptors(world.surface(8), channels=16, seed=1), straight)


# Many objects


@given(height=st.integers(60, 200), width=st.integers(60, 200), count=st.integers(1, 150))
@settings(max_examples=25, deadline=None)
def test_tiled_mask_separates_all_objects_by_background(height: int, width: int, count: int) -> None:
    mask = tiled_mask(height, width, count)
    assert mask.shape == (height, width)
    assert mask.dtype == np.uint16
    assert set(np.unique(mask)) == set(range(count + 1))
    for one, other in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1])):
        assert ((one == other) | (one == 0) | (other == 0)).all()


# Refusals


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"height_px": 8}, "height_px of the synthetic world is 8; give at least 32"),
        ({"frames": 0}, "frames of the synthetic world is 0; give at least 1"),
        ({"objects": 70_000}, "objects of the synthetic world is 70000; give 1 to 65535"),
        ({"camera_px_per_frame": float("nan")}, "camera_px_per_frame of the synthetic world is nan"),
        ({"camera_px_per_frame": float("inf")}, "camera_px_per_frame of the synthetic world is inf"),
    ],
)
def test_invalid_settings_are_refused(invalid: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        WorldConfig(**invalid)


@pytest.mark.parametrize("t", [-1, 40])
def test_frames_outside_the_clip_are_refused(world: World, t: int) -> None:
    with pytest.raises(VideoError, match=f"no frame {t}, only 0 to 39"):
        world.frame(t)


def test_odd_channels_and_zero_lengths_are_refused(world: World) -> None:
    with pytest.raises(SettingsError, match="even"):
        surface_descriptors(world.surface(0), channels=7)
    with pytest.raises(SettingsError, match="more than 0"):
        surface_descriptors(world.surface(0), length_px=0.0)


@pytest.mark.parametrize(("size", "count", "message"), [((9, 9), 100, "3x3"), ((9, 9), 0, "at least 1 px")])
def test_masks_that_cannot_be_tiled_are_refused(size: tuple[int, int], count: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        tiled_mask(*size, count)
