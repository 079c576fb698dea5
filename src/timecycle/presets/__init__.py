"""Presets are data: TOML files, one folder per verb."""
