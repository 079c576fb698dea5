"""Small reports in the form of real ones, for tests of tables, plots and comparisons."""

from timecycle.evaluation.reporting.report import Report

CONFIG = {
    "image_size_px": 240,
    "past_frames": 7,
    "neighbours": 10,
    "weighting": "joint",
    "temperature": 0.07,
    "window_px": 48.0,
    "anchor_window_px": 48.0,
}


def davis_report(encoder="rgb", j=(0.2, 0.4, 0.6, 0.5, 0.7, 0.3), *, benchmark="davis2016", sha256="ab", **config):
    """Make a report with J as given per clip, F 0.1 above it, and the same score on each frame of a clip."""
    clips = {f"clip-{i}": value for i, value in enumerate(j)}
    mean = sum(j) / len(j)
    return Report(
        benchmark=benchmark,
        encoder=encoder,
        scores=_davis_scores(mean),
        per_sequence={
            name: {
                **_davis_scores(value),
                "objects": 1,
                "frames": 7,
                "J_per_frame": [value] * 5,
                "F_per_frame": [value + 0.1] * 5,
            }
            for name, value in clips.items()
        },
        commit="0123456789abcdef",
        scored_commit="0123456789abcdef",
        config={**CONFIG, **config},
        weights_sha256="0" * 64,
        description="test",
        data={"name": benchmark, "sequences": len(j), "frames": 7 * len(j), "sha256": sha256},
        machine={"processor": "Abacus", "threads": 1},
        seconds=4.2,
        frames_predicted=7 * len(j),
        timecycle="0",
    )


def _davis_scores(j):
    return {"JF": j + 0.05, "J": j, "J_recall": 0.5, "J_decay": 0.25, "F": j + 0.1, "F_recall": 0.5, "F_decay": 0.25}
