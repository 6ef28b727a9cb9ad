"""Content-addressed storage in the process, and a client of the ipfrs daemon."""

from __future__ import annotations

from . import errors

__all__ = ["errors"]
