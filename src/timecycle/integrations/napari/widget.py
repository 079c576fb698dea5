"""The widget: annotate in napari's own layers, propagate, look where confidence is low, correct, propagate again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from napari.layers import Points
from napari.qt.threading import create_worker
from napari.utils.notifications import show_error
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QFormLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QVBoxLayout,
    QWidget,
)

import timecycle as tc
from timecycle.errors import LabelError, OutputError, TimecycleError
from timecycle.integrations.napari import jobs
from timecycle.integrations.napari.controls import LayerChoice, button, row
from timecycle.integrations.napari.jobs import CancelledError, Result, RunState
from timecycle.integrations.napari.layers import (
    RUN_KEY,
    VIDEO_KEY,
    Layer,
    ShownRun,
    annotations_of,
    corrections_of,
    is_annotation_layer,
    is_video_layer,
    keep_frames,
    layer_video,
    open_layer_video,
    show_labels,
)
from timecycle.integrations.napari.plot import ConfidencePlot
from timecycle.integrations.remedies import without_commands


class PropagateWidget(QWidget):
    """Propagate what is painted in a Labels layer, or placed in a Points layer, through the video of an Image layer."""

    progressed = Signal(int, int)  # emitted by the worker's thread, received by that of the window

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._worker: Any = None
        self._layer: Layer = None  # that the worker's result belongs to
        self._unfinished: dict[Path, tuple[object, ...]] = {}  # what was propagated when it was cancelled, by folder
        self._state: RunState | None = None
        self._make_controls()
        self._lay_out()
        self.progressed.connect(self._show_progress)
        napari_viewer.dims.events.current_step.connect(self._follow_frame)
        self._choose_layer()

    def _make_controls(self) -> None:
        self.video_choice = LayerChoice(self._viewer, is_video_layer)
        self.label_choice = LayerChoice(self._viewer, is_annotation_layer)
        self.video_choice.currentIndexChanged.connect(self._choose_layer)
        self.label_choice.currentIndexChanged.connect(self._choose_layer)
        self.point_names = QLineEdit()
        self.point_names.setPlaceholderText("nose, tail ...: names of points, in order")
        self.preset_choice = QComboBox()
        self.preset_choice.addItems(jobs.PRESETS)
        self.preset_choice.setCurrentText("default")
        self.folder_line = QLineEdit()
        self.folder_line.setToolTip("labels, tables, measurements and an overlay video are written to this new folder")
        self.browse_button = button("...", self._browse)
        self.propagate_button = button("Propagate", self.propagate)
        self.cancel_button = button("Cancel", self.cancel)
        self.undo_button = button("Undo correction", self.undo)
        self.restart_button = button("Start again", self.start_again)
        self.restart_button.setToolTip("keep only the annotated frames of the layer, to propagate them again")
        self.progress_bar = QProgressBar()
        self.message = QLabel()
        self.message.setWordWrap(True)
        self.plot = ConfidencePlot()
        self.plot.frame_clicked.connect(self.go_to_frame)
        self.suggestions = QListWidget()
        self.suggestions.setWordWrap(True)
        self.suggestions.itemClicked.connect(lambda item: self.go_to_frame(item.data(_FRAME)))

    def _lay_out(self) -> None:
        form = QFormLayout()
        form.addRow("Video", self.video_choice)
        form.addRow("Annotations", self.label_choice)
        form.addRow("Point names", self.point_names)
        form.addRow("Preset", self.preset_choice)
        form.addRow("Folder", row(self.folder_line, self.browse_button))
        layout = QVBoxLayout(self)
        layout.addLayout(form)
        layout.addWidget(row(self.propagate_button, self.cancel_button))
        layout.addWidget(self.progress_bar)
        layout.addWidget(self.message)
        layout.addWidget(self.plot)
        layout.addWidget(QLabel("Frames to check first; click to go there"))
        layout.addWidget(self.suggestions)
        layout.addWidget(row(self.undo_button, self.restart_button))

    # What the buttons do

    def propagate(self) -> None:
        """Propagate the annotations of the layer, or, of a layer that shows a run, the frames that were edited."""
        self._try(self._correct if self._shown_run() is not None else self._propagate)

    def undo(self) -> None:
        """Take the last correction back."""
        shown = self._shown_run()
        if shown is not None:
            self._start(self.label_choice.layer, partial(jobs.undo, shown.folder))

    def cancel(self) -> None:
        """Stop the work after the frame it is at; the layer stays as it is."""
        if self._worker is not None:
            self._worker.quit()
            self.message.setText("stopping ...")

    def start_again(self) -> None:
        """Keep the annotated frames of the layer and forget its run, whose folder stays."""
        if self._state is not None:
            keep_frames(self.label_choice.layer, self._state.annotated)
            self._choose_layer()
            self.message.setText("propagate the annotated frames again, into another folder")

    def go_to_frame(self, index: int) -> None:
        """Show a frame of the video."""
        self._viewer.dims.set_current_step(0, index)

    def _propagate(self) -> None:
        image, layer = self._layers()
        folder = Path(self.folder_line.text()).expanduser()
        labels = annotations_of(layer, image, self._names())
        preset = self.preset_choice.currentText()
        task = (layer.name, preset, str(sorted((index, repr(one), _content(one)) for index, one in labels.items())))
        if folder not in self._unfinished and folder.is_dir() and any(folder.iterdir()):
            raise OutputError(f"{folder} is not empty", remedy="choose another folder, or open this one with napari")
        options = {
            "preset": preset,
            "resume": self._unfinished.get(folder) == task,
            "overwrite": self._unfinished.get(folder, task) != task,
        }
        self._unfinished[folder] = task
        self._start(layer, partial(jobs.propagate, open_layer_video(image), labels, folder, **options))

    def _correct(self) -> None:
        image, layer = self._layers()
        shown = self._shown_run()
        if shown is None:
            return
        corrections = corrections_of(layer, image, shown, self._names())
        if not corrections:
            raise LabelError(
                "no frame was edited since the last propagation", remedy="go to a wrong frame and fix it in the layer"
            )
        self._start(layer, partial(jobs.correct, layer_video(image), corrections, shown.folder))

    def _browse(self) -> None:
        parent = str(Path(self.folder_line.text()).parent)
        chosen = QFileDialog.getExistingDirectory(self, "Folder for the results", parent)
        if chosen:
            self.folder_line.setText(chosen)

    # The worker

    def _start(self, layer: Layer, job: Callable[..., Result]) -> None:
        """Run a job in another thread; its labels go into the layer, which cannot be edited meanwhile."""
        if self._worker is not None:
            raise LabelError("a propagation is running", remedy="wait for its end, or cancel it")

        def report(done: int, total: int) -> None:
            if worker.abort_requested:  # by `cancel`, or by napari, which closes
                raise CancelledError
            self.progressed.emit(done, total)

        worker = create_worker(job, report=report, _start_thread=False, _ignore_errors=True)
        worker.returned.connect(self._finish)
        worker.errored.connect(self._fail)
        self._worker, self._layer = worker, layer
        layer.editable = False  # also empties napari's undo, which would bring old pixels back
        self.progress_bar.setRange(0, 0)
        self.message.setText("preparing ...")
        self._enable()
        worker.start()

    def _finish(self, result: Result) -> None:
        layer = self._end()
        self._unfinished.pop(result.state.folder, None)
        show_labels(layer, result.labels, result.state.folder)
        self._show_run(result.state)
        self.message.setText(f"{result.message}; results are in {result.state.folder}")

    def _fail(self, error: BaseException) -> None:
        self._end()
        if isinstance(error, CancelledError):
            self.message.setText("cancelled: the layer is as it was; Propagate resumes")
            return
        if not isinstance(error, TimecycleError):
            self.message.setText(str(error))
            raise error  # napari shows where it comes from
        self._tell(error)

    def _end(self) -> Layer:
        layer, self._worker, self._layer = self._layer, None, None
        layer.editable = True
        self.progress_bar.setRange(0, 1)
        self.progress_bar.reset()
        self._enable()
        return layer

    def _try(self, start: Callable[[], None]) -> None:
        """Start something; what the person can fix is said in the widget."""
        try:
            start()
        except TimecycleError as error:
            self._tell(error)

    def _tell(self, error: TimecycleError) -> None:
        text = str(without_commands(error))
        self.message.setText(text)
        show_error(text)

    def _show_progress(self, done: int, total: int) -> None:
        if self._worker is not None:
            self.progress_bar.setRange(0, total)
            self.progress_bar.setValue(done)
            self.message.setText(f"step {done} of {total}")

    # The layers

    def _layers(self) -> tuple[Layer, Layer]:
        image, layer = self.video_choice.layer, self.label_choice.layer
        if image is None or layer is None:
            raise LabelError(
                "there is no video, or no layer of annotations",
                remedy="open a video, select it in the list of layers, and make a new Labels or Points layer above it",
            )
        return image, layer

    def _names(self) -> list[str]:
        return [name.strip() for name in self.point_names.text().split(",") if name.strip()]

    def _shown_run(self) -> ShownRun | None:
        layer = self.label_choice.layer
        shown: ShownRun | None = None if layer is None else layer.metadata.get(RUN_KEY)
        return shown

    def _choose_layer(self, index: int = 0) -> None:
        """Show what is known of the chosen layers."""
        layer, shown = self.label_choice.layer, self._shown_run()
        self.point_names.setEnabled(isinstance(layer, Points))
        if shown is None:
            self._show_run(None)
            image = self.video_choice.layer
            path = None if image is None else image.metadata.get(VIDEO_KEY)
            self.folder_line.setText(str(jobs.free_folder(path, "video" if image is None else image.name)))
        elif self._state is None or self._state.folder != shown.folder:
            self._try(lambda: self._show_run(jobs.state_of(tc.Run(shown.folder))))

    def _show_run(self, state: RunState | None) -> None:
        self._state = state
        self.suggestions.clear()
        self.plot.show_run(
            state.confidence if state else (),
            state.annotated if state else (),
            [one.index for one in state.suggestions] if state else (),
        )
        for one in state.suggestions if state else ():
            item = QListWidgetItem(f"frame {one.index}: {one.reason}")
            item.setData(_FRAME, one.index)
            self.suggestions.addItem(item)
        if state is not None:
            self.folder_line.setText(str(state.folder))
            self.message.setText(state.note)
        self._follow_frame()
        self._enable()

    def _follow_frame(self, event: object = None) -> None:
        step = self._viewer.dims.current_step
        self.plot.show_frame(int(step[0]) if len(step) > 2 else 0)

    def _enable(self) -> None:
        busy, run = self._worker is not None, self._state is not None
        self.propagate_button.setEnabled(not busy)
        self.propagate_button.setText("Propagate corrections" if run else "Propagate")
        self.cancel_button.setEnabled(busy)
        self.undo_button.setEnabled(self._state is not None and self._state.corrected and not busy)
        self.restart_button.setEnabled(run and not busy)
        for fixed in (self.preset_choice, self.folder_line, self.browse_button):  # a run keeps its settings
            fixed.setEnabled(not run and not busy)
        for choice in (self.video_choice, self.label_choice):
            choice.setEnabled(not busy)


_FRAME = 0x0100  # Qt.ItemDataRole.UserRole, as a number that every binding takes


def _content(labels: "tc.Labels") -> bytes:
    """Return what tells annotations of one kind apart."""
    array = labels.ids if isinstance(labels, tc.Masks) else labels.xy  # type: ignore[attr-defined]
    content: bytes = array.tobytes()
    return content
