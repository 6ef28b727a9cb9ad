"""Reproducible benchmarks: ``python -m ipfrs.bench --help``."""
