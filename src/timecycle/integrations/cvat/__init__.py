"""A tracking function for agents of CVAT: `cvat-cli function run-agent ID --function-module` with this module."""

from timecycle.integrations.cvat.tracking import TrackingFunction, create

__all__ = ["TrackingFunction", "create"]
