"""Controls of the widget: a list of layers to choose from, buttons, rows."""

from collections.abc import Callable
from typing import Any

from qtpy.QtWidgets import QComboBox, QHBoxLayout, QPushButton, QWidget

from timecycle.integrations.napari.layers import Layer


class LayerChoice(QComboBox):
    """The layers of a viewer that are of some kind, the newest first; it follows the list of layers."""

    def __init__(self, viewer: Any, accepts: Callable[[Layer], bool]) -> None:
        super().__init__()
        self._viewer, self._accepts = viewer, accepts
        self._layers: list[Layer] = []
        for change in (viewer.layers.events.inserted, viewer.layers.events.removed, viewer.layers.events.reordered):
            change.connect(self._refresh)
        self._refresh()

    @property
    def layer(self) -> Layer:
        """The chosen layer; None if there is none."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def choose(self, layer: Layer) -> None:
        """Choose a layer of the list."""
        self.setCurrentIndex(self._layers.index(layer))

    def _refresh(self, event: object = None) -> None:
        """List the layers again: a new one is chosen, otherwise the choice stays."""
        before, chosen = self._layers, self.layer
        layers = [layer for layer in reversed(list(self._viewer.layers)) if self._accepts(layer)]
        new = next((layer for layer in layers if layer not in before), None)
        chosen = new if new is not None else chosen
        self.blockSignals(True)
        self._layers = layers
        self.clear()
        self.addItems([layer.name for layer in layers])
        for layer in layers:
            layer.events.name.connect(self._show_names)  # once, however often it is asked for
        self.setCurrentIndex(layers.index(chosen) if chosen in layers else 0 if layers else -1)
        self.blockSignals(False)
        self.currentIndexChanged.emit(self.currentIndex())

    def _show_names(self, event: object = None) -> None:
        for index, layer in enumerate(self._layers):
            self.setItemText(index, layer.name)


def button(text: str, do: Callable[[], None]) -> QPushButton:
    """Make a button."""
    made = QPushButton(text)
    made.clicked.connect(lambda checked=False: do())
    return made


def row(*widgets: QWidget) -> QWidget:
    """Put widgets beside each other."""
    made = QWidget()
    layout = QHBoxLayout(made)
    layout.setContentsMargins(0, 0, 0, 0)
    for widget in widgets:
        layout.addWidget(widget)
    return made
