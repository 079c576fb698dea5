"""A plot of confidence over time, on which a click jumps to a frame."""

from collections.abc import Sequence

from qtpy.QtCore import QPointF, QRectF, QSize, Qt, Signal
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QSizePolicy, QWidget

_CURVE = QColor("#4ea1ff")
_ANNOTATED = QColor("#5fd38d")
_SUGGESTED = QColor("#ff9d5c")
_MARGIN_PX = 6
_AXIS_PX = 26  # for the numbers on the left
_TEXT_PX = 16  # for the line below


class ConfidencePlot(QWidget):
    """Confidence of every frame from 0 to 1, with marks for annotated, suggested and current frames."""

    frame_clicked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._confidence: Sequence[float | None] = ()
        self._annotated: Sequence[int] = ()
        self._suggested: Sequence[int] = ()
        self._current = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setToolTip("confidence of every frame; click to go there")

    def sizeHint(self) -> QSize:  # noqa: N802, Qt's name
        return QSize(260, 110)

    def show_run(
        self, confidence: Sequence[float | None], annotated: Sequence[int] = (), suggested: Sequence[int] = ()
    ) -> None:
        self._confidence, self._annotated, self._suggested = confidence, annotated, suggested
        self.update()

    def show_frame(self, index: int) -> None:
        self._current = index
        self.update()

    def mousePressEvent(self, event: object) -> None:  # noqa: N802, Qt's name
        if self._confidence:
            self.frame_clicked.emit(self.frame_at(event.position().x()))  # type: ignore[attr-defined]

    def frame_at(self, x_px: float) -> int:
        """Return the frame that is nearest to a position."""
        area, last = self._area(), len(self._confidence) - 1
        share = float((x_px - area.left()) / max(area.width(), 1.0))
        return round(min(max(share, 0.0), 1.0) * last)

    def _area(self) -> QRectF:
        rest = QRectF(self.rect())
        return rest.adjusted(_AXIS_PX, _MARGIN_PX, -_MARGIN_PX, -_TEXT_PX - _MARGIN_PX)

    def _point(self, index: float, confidence: float) -> QPointF:
        area, last = self._area(), max(len(self._confidence) - 1, 1)
        return QPointF(area.left() + area.width() * index / last, area.bottom() - area.height() * confidence)

    def paintEvent(self, event: object) -> None:  # noqa: N802, Qt's name
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        text = self.palette().text().color()
        faint = QColor(text)
        faint.setAlpha(60)
        area = self._area()
        painter.setPen(faint)
        painter.drawRect(area)
        painter.setPen(text)
        for value in (0, 1):
            level = area.bottom() - area.height() * value
            box = QRectF(0, level - 8, _AXIS_PX - 4, 16)
            painter.drawText(box, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, str(value))
        below = QRectF(area.left(), area.bottom() + 2, area.width(), _TEXT_PX)
        if not self._confidence:
            painter.drawText(below, Qt.AlignmentFlag.AlignCenter, "confidence: propagate first")
            return
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, "frame 0")
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, str(len(self._confidence) - 1))
        self._paint_run(painter, area, text)

    def _paint_run(self, painter: QPainter, area: QRectF, text: QColor) -> None:
        for frames, colour in ((self._annotated, _ANNOTATED), (self._suggested, _SUGGESTED)):
            painter.setPen(QPen(colour, 2))
            for index in frames:
                painter.drawLine(self._point(index, 0), self._point(index, 1))
        painter.setPen(QPen(_CURVE, 2))
        line = QPolygonF()
        for index, value in enumerate([*self._confidence, None]):
            if value is not None:
                line.append(self._point(index, value))
            elif line:  # a gap: nothing is known of this frame
                painter.drawPolyline(line)
                line = QPolygonF()
        painter.setPen(QPen(text, 1, Qt.PenStyle.DashLine))
        where = self._point(min(self._current, len(self._confidence) - 1), 0).x()
        painter.drawLine(QPointF(where, area.top()), QPointF(where, area.bottom()))
