"""The plugin as napari finds it: its manifest, its window, its readers and samples."""

import os
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import timecycle as tc
from clips import small_world, write_clip

napari = pytest.importorskip("napari", reason="napari is not installed")
npe2 = pytest.importorskip("npe2", reason="napari is not installed")

MANIFEST = Path(tc.__file__).parent / "napari.yaml"


@pytest.fixture
def plugin():
    """The manager of plugins with ours, as its entry point or, in a checkout that is not installed, from its file."""
    manager = npe2.PluginManager.instance()
    if "timecycle" not in manager:
        manager.register(npe2.PluginManifest.from_file(MANIFEST))
    return manager


@pytest.fixture
def window(qt_app, plugin):
    """napari's window; where its canvas cannot be drawn, for want of OpenGL, the test is skipped."""
    if not os.environ.get("DISPLAY"):
        pytest.skip("the window of napari needs a display: run the tests with xvfb-run")
    from qtpy.QtGui import QOpenGLContext

    if not QOpenGLContext().create():
        pytest.skip("Qt has no OpenGL on this display")
    viewer = napari.Viewer(show=False)
    yield viewer
    viewer.close()


def test_the_manifest_is_valid_and_what_its_commands_name_exists():
    manifest = npe2.PluginManifest.from_file(MANIFEST)
    manifest.validate_imports()
    assert [one.display_name for one in manifest.contributions.widgets] == ["Propagate", "DeepLabCut tracking"]


def test_napari_finds_the_manifest_through_the_entry_point():
    found = {one.name: one.value for one in entry_points(group="napari.manifest")}
    if "timecycle" not in found:
        pytest.skip("timecycle is not installed here, or from before it had the plugin")
    assert found["timecycle"] == "timecycle:napari.yaml"
    assert npe2.PluginManifest.from_distribution("timecycle").name == "timecycle"


def test_videos_and_output_folders_are_read_by_the_plugin_and_other_folders_are_not(plugin, qt_app, tmp_path):
    world = small_world(frames=4)
    clip = tmp_path / "clip.mp4"
    write_clip(clip, world)
    ((pixels, options, kind),) = npe2.read([str(clip)], stack=False, plugin_name="timecycle")
    assert (kind, pixels.shape, options["name"]) == ("image", (4, 64, 96, 3), "clip")
    run = tc.propagate_to_folder(clip, {0: world.mask(0)}, tmp_path / "clip_timecycle", config="fast")
    layers = npe2.read([str(run.folder)], stack=False, plugin_name="timecycle")
    assert [kind for _, _, kind in layers] == ["image", "labels"]
    assert np.array_equal(layers[1][0][3], run.labels[3].ids)
    (tmp_path / "photos_timecycle").mkdir()
    with pytest.raises(ValueError, match="timecycle"):
        npe2.read([str(tmp_path / "photos_timecycle")], stack=False, plugin_name="timecycle")


def test_the_widget_opens_in_the_window_and_propagates_what_is_painted_there(window, wait_for, tmp_path):
    world = small_world(frames=6)
    image = window.add_image(world.video(), rgb=True, name="clip")
    _, widget = window.window.add_plugin_dock_widget("timecycle", "Propagate")
    window.layers.selection.active = image
    window._new_labels()  # the button of napari
    layer = window.layers[-1]
    assert widget.video_choice.layer == image
    assert widget.label_choice.layer == layer
    layer.selected_label = 1
    layer.data_setitem(np.nonzero((world.mask(0) == 1)[None] & (np.arange(6) == 0)[:, None, None]), 1)
    widget.preset_choice.setCurrentText("fast")
    widget.folder_line.setText(str(tmp_path / "run"))
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert (layer.data[-1] > 0).any()
    window.dims.set_current_step(0, 3)
    layer.paint((3, 10, 10), 1)
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    run = tc.Run(tmp_path / "run")
    assert [frame.index for frame in run.frames if frame.annotated] == [0, 3]
    assert all(np.array_equal(layer.data[i], run.labels[i].ids) for i in range(len(run)))


@pytest.mark.parametrize(("key", "kind"), [("masks", "labels"), ("points", "points")])
def test_samples_open_with_annotations_of_their_first_frame(plugin, viewer, key, kind):
    layers = viewer.open_sample("timecycle", key)
    assert [layer._type_string for layer in layers] == ["image", kind]
    frames = layers[1].data[:, 0] if kind == "points" else np.flatnonzero(layers[1].data.any(axis=(1, 2)))
    assert np.unique(frames).tolist() == [0]


def test_closing_napari_ends_a_propagation(window, wait_for, tmp_path):
    from napari._qt.qthreading import wait_for_workers_to_quit

    window.open_sample("timecycle", "points")
    _, widget = window.window.add_plugin_dock_widget("timecycle", "Propagate")
    widget.folder_line.setText(str(tmp_path / "run"))
    begun = []
    widget.progressed.connect(lambda done, total: begun.append(done))
    widget.propagate()
    wait_for(lambda: bool(begun))
    wait_for_workers_to_quit(60_000)  # as napari does when it quits
    wait_for(lambda: widget._worker is None)
    assert "cancelled" in widget.message.text()


@pytest.mark.data
@pytest.mark.slow  # 20 frames of real footage at 480p
def test_a_swan_is_followed_through_real_footage(viewer, wait_for, data, tmp_path):
    from timecycle.integrations.napari.widget import PropagateWidget

    davis = data / "davis2016"
    names = sorted((davis / "JPEGImages" / "480p" / "blackswan").glob("*.jpg"))[:20]
    with tc.open_video(names) as video:
        viewer.add_image(np.stack([frame.image for frame in video]), rgb=True, name="blackswan")
    truth = [tc.Masks.read(davis / "Annotations" / "480p" / "blackswan" / f"{t:05d}.png").ids > 0 for t in (0, 19)]
    labels = np.zeros((20, *truth[0].shape), np.uint8)
    labels[0] = truth[0]
    layer = viewer.add_labels(labels)
    widget = PropagateWidget(viewer)
    widget.preset_choice.setCurrentText("fast")
    widget.folder_line.setText(str(tmp_path / "run"))
    widget.propagate()
    wait_for(lambda: widget._worker is None, seconds=500)
    found = layer.data[19] > 0
    assert (found & truth[1]).sum() / (found | truth[1]).sum() > 0.8
