"""``acr data``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from acr.data.catalog import CATALOG


def list_datasets() -> None:
    """List the data sets."""
    table = Table(box=None, pad_edge=False)
    for head in ("name", "what it is", "tasks", "epochs", "width", "rate", "shift"):
        table.add_column(head)
    for spec in CATALOG.values():
        shift = f"{spec.ood_constants} {','.join(map(str, spec.ood_severities))}"
        table.add_row(spec.name, spec.title, str(spec.tasks or "–"), str(spec.epochs), str(spec.width),
                      f"{spec.learning_rate:g}", shift)  # fmt: skip
    Console(highlight=False).print(table)
