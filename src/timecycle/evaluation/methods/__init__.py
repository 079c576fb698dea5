"""Methods that are evaluated."""
