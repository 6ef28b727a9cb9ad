"""Measurements that everybody can repeat: ``python -m ipfrs.bench --help``."""
