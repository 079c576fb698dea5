"""Many videos, each as `timecycle propagate` would do it: one after the other, in parts of an array job, or on Ray."""
