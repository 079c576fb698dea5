"""The calls of SAM 2's video predictor: a script that has them switches by its import."""

from timecycle.integrations.sam2_session.predictor import (
    VideoPredictor,
    build_sam2_video_predictor,
    build_sam2_video_predictor_hf,
)

SAM2VideoPredictor = VideoPredictor  # what scripts import that load it by `from_pretrained`

__all__ = ["SAM2VideoPredictor", "VideoPredictor", "build_sam2_video_predictor", "build_sam2_video_predictor_hf"]
