"""What a run can do with the help of packages above it: draw itself, become a classifier.

Runs know nothing of the report or of the classifier, which are made of them. So ``acr/__init__.py``, the top of the
package, enters here by name what is to be called, and a run calls it without knowing where it comes from.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

FUNCTIONS: dict[str, str] = {}
"""``module:function`` by name, imported when it is called."""


def call(name: str, *arguments: Any, **keywords: Any) -> Any:
    """Call the function that was entered under this name."""
    module, function = FUNCTIONS[name].split(":")
    return getattr(import_module(module), function)(*arguments, **keywords)
