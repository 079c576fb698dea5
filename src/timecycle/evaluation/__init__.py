"""Benchmarks, metrics, methods and reports of evaluations."""
