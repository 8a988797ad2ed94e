"""Modules that are imported when they are first used: writing a text needs none of what looks inside, and no torch."""

from importlib import import_module
from typing import Any


class Later:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
