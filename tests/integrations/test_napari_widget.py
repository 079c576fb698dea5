"""The napari widget: paint, propagate, cancel, correct and undo, with real layers, threads and propagation."""

import numpy as np
import pytest

import timecycle as tc
from clips import small_world, write_clip

pytest.importorskip("napari", reason="napari is not installed")

from timecycle.integrations.napari.layers import RUN_KEY
from timecycle.integrations.napari.reading import read_run, read_video
from timecycle.integrations.napari.widget import PropagateWidget

FRAMES = 8


@pytest.fixture(scope="module")
def world():
    return small_world(frames=FRAMES)


@pytest.fixture
def widget(viewer, world, tmp_path):
    viewer.add_image(world.video(), rgb=True, name="clip")
    widget = PropagateWidget(viewer)
    widget.preset_choice.setCurrentText("fast")
    yield widget
    widget.deleteLater()


@pytest.fixture
def masks(viewer, widget, world, tmp_path):
    """A layer with the masks of frame 0, as if they had been painted, and a folder for the results."""
    layer = viewer.add_labels(np.zeros((FRAMES, *world.mask(0).shape), np.uint16), name="masks")
    layer.data[0] = world.mask(0)
    widget.folder_line.setText(str(tmp_path / "run"))
    return layer


def test_painted_masks_are_propagated_into_their_layer_as_the_api_does(widget, masks, world, wait_for, tmp_path):
    widget.propagate()
    assert not masks.editable
    wait_for(lambda: widget._worker is None)
    assert masks.editable
    run = tc.Run(tmp_path / "run")
    assert len(run) == FRAMES
    expected = tc.propagate(world.video(), {0: tc.Masks(world.mask(0))}, config="fast")
    for frame in expected:
        assert np.array_equal(masks.data[frame.index], frame.labels.ids)
    assert "propagated 1 annotated frame through 8 frames" in widget.message.text()


def test_progress_is_reported_and_confidence_and_suggestions_are_shown(widget, masks, viewer, wait_for, tmp_path):
    steps = []
    widget.progressed.connect(lambda done, total: steps.append((done, total)))
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert steps[-1] == (FRAMES, FRAMES)
    run = tc.Run(tmp_path / "run")
    assert widget.plot._confidence == [frame.confidence for frame in run.frames]
    queue = tc.check(run).queue
    assert widget.suggestions.count() == len(queue) > 0
    widget.suggestions.itemClicked.emit(widget.suggestions.item(0))
    assert viewer.dims.current_step[0] == queue[0].index


def test_a_click_on_the_plot_goes_to_its_frame(widget, viewer):
    widget.plot.resize(260, 110)
    widget.plot.show_run([0.5] * FRAMES)
    area = widget.plot._area()
    assert [widget.plot.frame_at(x) for x in (0, area.left(), area.right(), 1000)] == [0, 0, FRAMES - 1, FRAMES - 1]
    widget.plot.frame_clicked.emit(5)
    assert viewer.dims.current_step[0] == 5
    assert widget.plot._current == 5
    assert widget.plot.grab().width() > 0  # it paints


def test_only_the_frames_that_depend_on_a_correction_change(widget, masks, world, wait_for, tmp_path):
    masks.data[6] = world.mask(6)
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    before = masks.data.copy()
    assert not widget.undo_button.isEnabled()  # there is nothing to undo yet
    masks.data[3][masks.data[3] == 1] = 0
    masks.data[3][2:12, 2:12] = 1
    corrected = masks.data[3].copy()
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert np.array_equal(masks.data[3] == 1, corrected == 1)  # other objects are propagated again
    run = tc.Run(tmp_path / "run")
    assert [frame.index for frame in run.frames if frame.annotated] == [0, 3, 6]
    for index in (0, 6, 7):  # annotated, or beyond an annotated frame
        assert np.array_equal(masks.data[index], before[index])
    for index in range(FRAMES):
        assert np.array_equal(masks.data[index], run.labels[index].ids)
    assert widget.undo_button.isEnabled()
    widget.undo()
    wait_for(lambda: widget._worker is None)
    assert np.array_equal(masks.data, before)
    assert not widget.undo_button.isEnabled()


def test_only_the_objects_that_were_edited_are_corrected(widget, masks, wait_for, tmp_path):
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    free = masks.data[4] == 0
    masks.data[4][free & (np.indices(free.shape)[0] < 4)] = 2
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    rows = tc.Run(tmp_path / "run").confidence[4]
    assert {name for name, one in rows.items() if one.annotated} == {"2"}


def test_an_erased_object_is_absent(widget, masks, wait_for, tmp_path):
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    masks.data[4][masks.data[4] == 1] = 0
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert not (tc.Run(tmp_path / "run").labels[4].ids == 1).any()


def test_cancelling_leaves_the_layer_and_the_next_propagation_resumes(widget, masks, wait_for, tmp_path):
    before = masks.data.copy()
    widget.progressed.connect(lambda done, total: widget.cancel())
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert "cancelled" in widget.message.text()
    assert np.array_equal(masks.data, before)
    assert RUN_KEY not in masks.metadata
    widget.progressed.disconnect()
    widget.progressed.connect(widget._show_progress)
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert len(tc.Run(tmp_path / "run")) == FRAMES
    assert masks.data[FRAMES - 1].any()


def test_after_cancelling_other_annotations_replace_the_unfinished_run(widget, masks, world, wait_for, tmp_path):
    widget.progressed.connect(lambda done, total: widget.cancel())
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    widget.progressed.disconnect()
    masks.data[2] = world.mask(2)
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert [frame.index for frame in tc.Run(tmp_path / "run").frames if frame.annotated] == [0, 2]


def test_starting_again_keeps_the_annotated_frames(widget, masks, world, wait_for, tmp_path):
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    widget.start_again()
    assert np.array_equal(masks.data[0], world.mask(0))
    assert not masks.data[1:].any()
    assert RUN_KEY not in masks.metadata
    assert widget.propagate_button.text() == "Propagate"


def test_points_are_propagated_dragged_removed_and_propagated_again(widget, viewer, world, wait_for, tmp_path):
    first = world.keypoints(0)
    names = first.names[:3]
    data = [(0, y, x) for x, y in first.xy[:3]]
    layer = viewer.add_points(np.array(data), ndim=3, name="points")
    widget.point_names.setText(", ".join(names))
    widget.folder_line.setText(str(tmp_path / "run"))
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    run = tc.Run(tmp_path / "run")
    assert run.labels[0].names == names
    assert np.allclose(run.labels[0].xy, first.xy[:3])
    start = tc.Keypoints(names, first.xy[:3], np.ones(3, bool))
    for frame in tc.propagate(world.video(), {0: start}, config="fast"):
        shown = layer.data[layer.data[:, 0] == frame.index]
        assert np.allclose(shown[:, [2, 1]], frame.labels.xy[frame.labels.visible], atol=0.01)
    (row,) = np.flatnonzero((layer.data[:, 0] == 5) & (layer.features["name"] == names[0]))
    moved = layer.data.copy()
    moved[row, 1:] += (4, -3)
    layer.data = moved
    (gone,) = np.flatnonzero((layer.data[:, 0] == 5) & (layer.features["name"] == names[1]))
    layer.selected_data = {int(gone)}
    layer.remove_selected()
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    corrected = tc.Run(tmp_path / "run").labels[5]
    y, x = moved[row, 1:]
    assert np.allclose(corrected.xy[0], (x, y))
    assert not corrected.visible[1]
    annotated = {name for name, one in tc.Run(tmp_path / "run").confidence[5].items() if one.annotated}
    assert annotated == set(names[:2])


def test_problems_are_told_in_the_widget(widget, viewer, masks, wait_for, tmp_path):
    masks.data[:] = 0
    widget.propagate()
    assert "nothing is painted in the layer 'masks'" in widget.message.text()
    masks.data[0, 5:20, 5:20] = 1
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other.txt").write_text("")
    widget.propagate()
    assert "is not empty" in widget.message.text()
    widget.folder_line.setText(str(tmp_path / "new"))
    masks.scale = (1, 2, 2)
    widget.propagate()
    assert "another scale" in widget.message.text()
    masks.scale = (1, 1, 1)
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    widget.propagate()
    assert "no frame was edited" in widget.message.text()
    short = viewer.add_labels(np.ones((3, 20, 20), np.uint8), name="short")
    assert widget.label_choice.layer is short  # a new layer is chosen
    short.name = "renamed"
    assert widget.label_choice.currentText() == "renamed"
    widget.propagate()
    assert "'renamed' has the shape (3, 20, 20)" in widget.message.text()
    viewer.layers.clear()
    widget.propagate()
    assert "there is no video" in widget.message.text()


def test_an_error_of_the_engine_is_told_and_the_layer_can_be_edited_again(widget, masks, wait_for, tmp_path):
    (tmp_path / "file").write_text("")
    widget.folder_line.setText(str(tmp_path / "file" / "run"))
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert str(tmp_path / "file") in widget.message.text()
    assert "with -o" not in widget.message.text()  # there is no command line here
    assert masks.editable


def test_a_run_made_from_a_file_is_opened_again_and_corrected(viewer, world, wait_for, tmp_path):
    clip = tmp_path / "clip.mp4"
    write_clip(clip, world)
    run = tc.propagate_to_folder(clip, {0: world.mask(0)}, tmp_path / "clip_timecycle", config="fast")
    ((pixels, _, kind),) = read_video(str(clip))
    assert (kind, pixels.shape) == ("image", (FRAMES, *world.mask(0).shape, 3))
    with tc.open_video(clip) as video:
        assert np.array_equal(np.asarray(pixels[5]), video[5].image)
    layers = [getattr(viewer, f"add_{kind}")(data, **options) for data, options, kind in read_run(str(run.folder))]
    widget = PropagateWidget(viewer)
    assert widget.propagate_button.text() == "Propagate corrections"
    assert widget.suggestions.count() == len(tc.check(run).queue)
    layers[1].data[4, :6, :6] = 1
    widget.propagate()
    wait_for(lambda: widget._worker is None)
    assert [frame.index for frame in run.frames if frame.annotated] == [0, 4]


@pytest.mark.parametrize(("dtype", "highest"), [(np.uint16, 4000), (np.float32, 1.0)])
def test_layers_of_other_types_are_propagated_as_they_are_shown(viewer, world, wait_for, tmp_path, dtype, highest):
    grey = world.video().mean(axis=3)
    layer = viewer.add_image((grey / 255 * highest).astype(dtype), contrast_limits=(0, highest))
    from timecycle.integrations.napari.layers import LayerFrames

    frames = LayerFrames(layer)
    assert len(frames) == FRAMES
    assert np.abs(frames[3].astype(float) - grey[3]).max() <= 1
    with tc.open_video(frames) as video:
        assert len(video) == FRAMES
