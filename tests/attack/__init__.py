"""Hundreds of hostile uses of the package, all from one seed; see `__main__.py`."""
