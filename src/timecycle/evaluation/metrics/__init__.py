"""Measures of carried labels against the truth, defined as the official evaluators define them."""
