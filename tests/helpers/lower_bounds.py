"""Print the oldest version of every dependency that pyproject.toml admits, as constraints for pip.

python tests/helpers/lower_bounds.py > constraints.txt

What users install is pinned, not the tools of the tests.
"""

from __future__ import annotations

import re
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings tomli there
    import tomli as tomllib  # type: ignore[no-redef]

BOUND = re.compile(r"(?P<name>[\w.-]+)\s*>=\s*(?P<version>[\w.]+)")
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lower_bounds(requirements: list[str]) -> list[str]:
    """``name==version`` for every requirement; one without a lower bound is an error, since it promises too much.

    >>> lower_bounds(["torch>=2.6,<2.14", "numpy>=1.26"])
    ['torch==2.6', 'numpy==1.26']
    """
    pins = []
    for requirement in requirements:
        bound = BOUND.match(requirement)
        if bound is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lower bound; write it as name>=version")
        pins.append(f"{bound['name']}=={bound['version']}")
    return pins


if __name__ == "__main__":
    print(*lower_bounds(tomllib.loads(PROJECT.read_text("utf-8"))["project"]["dependencies"]), sep="\n")
