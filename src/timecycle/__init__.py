"""Propagate the annotations of a few frames through the whole video. Only the names listed here are public.

They are imported at first use: importing torch takes seconds, and the command line must react to Ctrl-C meanwhile.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from timecycle.errors import TimecycleError
from timecycle.version import __version__

if TYPE_CHECKING:
    from timecycle.api.conversion import Conversion, convert
    from timecycle.api.evaluation import compare, evaluate
    from timecycle.api.labelling import correspond, propagate, propagate_to_folder
    from timecycle.api.learning import pack, train
    from timecycle.api.many import bulk, label_batch
    from timecycle.api.review import audit, check, correct, tune, undo
    from timecycle.api.speed import benchmark
    from timecycle.bulk.scheduler import BulkSummary
    from timecycle.confidence.fusion import Confidence, ConfidenceConfig
    from timecycle.config import propagate_config, train_config
    from timecycle.data.packing.pack import Pack, PackConfig
    from timecycle.demo import write_sample
    from timecycle.evaluation.reporting.compare import Comparison
    from timecycle.evaluation.reporting.report import Report
    from timecycle.formats.supervision_detections import from_detections, to_detections
    from timecycle.grid import Grid, grid_over
    from timecycle.labels import Coordinates, Keypoints, Labels, Masks, Parts, Texture
    from timecycle.model.encoder import Encoder, FeatureMap
    from timecycle.model.hub import from_pretrained, save_pretrained
    from timecycle.model.registry import load_encoder
    from timecycle.propagation.flow import Correspondence
    from timecycle.propagation.propagator import Propagator
    from timecycle.propagation.settings import PropagateConfig
    from timecycle.propagation.video import LabelledFrame
    from timecycle.review.audit import Audit, AuditConfig
    from timecycle.review.check import CheckResult
    from timecycle.review.corrections import CorrectedInterval
    from timecycle.review.tune import TunedCandidate
    from timecycle.runs.opened import Run
    from timecycle.speed.table import SpeedTable
    from timecycle.training.settings import TrainConfig
    from timecycle.training.trainer import TrainingResult
    from timecycle.video import Frame, Video, open_video

__all__ = [
    "Audit",
    "AuditConfig",
    "BulkSummary",
    "CheckResult",
    "Comparison",
    "Confidence",
    "ConfidenceConfig",
    "Conversion",
    "Coordinates",
    "CorrectedInterval",
    "Correspondence",
    "Encoder",
    "FeatureMap",
    "Frame",
    "Grid",
    "Keypoints",
    "LabelledFrame",
    "Labels",
    "Masks",
    "Pack",
    "PackConfig",
    "Parts",
    "PropagateConfig",
    "Propagator",
    "Report",
    "Run",
    "SpeedTable",
    "Texture",
    "TimecycleError",
    "TrainConfig",
    "TrainingResult",
    "TunedCandidate",
    "Video",
    "__version__",
    "audit",
    "benchmark",
    "bulk",
    "check",
    "compare",
    "convert",
    "correct",
    "correspond",
    "evaluate",
    "from_detections",
    "from_pretrained",
    "grid_over",
    "label_batch",
    "load_encoder",
    "open_video",
    "pack",
    "propagate",
    "propagate_config",
    "propagate_to_folder",
    "save_pretrained",
    "to_detections",
    "train",
    "train_config",
    "tune",
    "undo",
    "write_sample",
]

_MODULES = {
    "Audit": "review.audit",
    "AuditConfig": "review.audit",
    "BulkSummary": "bulk.scheduler",
    "CheckResult": "review.check",
    "Comparison": "evaluation.reporting.compare",
    "Confidence": "confidence.fusion",
    "ConfidenceConfig": "confidence.fusion",
    "Conversion": "api.conversion",
    "Coordinates": "labels",
    "CorrectedInterval": "review.corrections",
    "Correspondence": "propagation.flow",
    "Encoder": "model.encoder",
    "FeatureMap": "model.encoder",
    "Frame": "video",
    "Grid": "grid",
    "Keypoints": "labels",
    "LabelledFrame": "propagation.video",
    "Labels": "labels",
    "Masks": "labels",
    "Pack": "data.packing.pack",
    "PackConfig": "data.packing.pack",
    "Parts": "labels",
    "PropagateConfig": "propagation.settings",
    "Propagator": "propagation.propagator",
    "Report": "evaluation.reporting.report",
    "Run": "runs.opened",
    "SpeedTable": "speed.table",
    "Texture": "labels",
    "TrainConfig": "training.settings",
    "TrainingResult": "training.trainer",
    "TunedCandidate": "review.tune",
    "Video": "video",
    "audit": "api.review",
    "benchmark": "api.speed",
    "bulk": "api.many",
    "check": "api.review",
    "compare": "api.evaluation",
    "convert": "api.conversion",
    "correct": "api.review",
    "correspond": "api.labelling",
    "evaluate": "api.evaluation",
    "from_detections": "formats.supervision_detections",
    "from_pretrained": "model.hub",
    "grid_over": "grid",
    "label_batch": "api.many",
    "load_encoder": "model.registry",
    "open_video": "video",
    "pack": "api.learning",
    "propagate": "api.labelling",
    "propagate_config": "config",
    "propagate_to_folder": "api.labelling",
    "save_pretrained": "model.hub",
    "to_detections": "formats.supervision_detections",
    "train": "api.learning",
    "train_config": "config",
    "tune": "api.review",
    "undo": "api.review",
    "write_sample": "demo",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `timecycle.bulk` the verb: importing the package of the same name would replace it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
