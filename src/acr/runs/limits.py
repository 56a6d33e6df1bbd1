"""How much is read of each file of a run folder, and of configs and recipes.

A run folder may come from anyone, and may be damaged. Every file has a bound, far above what this program writes, so
that no file can fill the memory or keep a report waiting. docs/security.md lists the bounds.
"""

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

YAML_BYTES = 256 * KIB
"""A config file or a recipe. The longest part of one is a list of class labels."""
YAML_VALUES = 50_000
"""Values in a config file or a recipe, where a value that an alias repeats counts each time."""
YAML_DEPTH = 12
"""How deeply its lists and mappings may be nested; a recipe needs five levels."""
JSON_BYTES = 64 * MIB
"""``results.json``, ``environment.json`` and the JSON files of a checkpoint."""
DIGITS = 18
"""Digits of a whole number in any file: enough for every count and seed, and no more than 64 bits hold."""
EVENTS_BYTES = 128 * MIB
"""``events.jsonl``: of a longer file, its newest part of this size."""
EVENT_BYTES = 1 * MIB
"""A line of ``events.jsonl``; longer ones are passed over."""
ARRAYS_BYTES = 4 * GIB
"""The arrays of an ``.npz`` file together, once they are unpacked."""
ARRAYS_RATIO = 200
"""Unpacked bytes of an ``.npz`` file per byte of the file, above :data:`ARRAYS_FREE`."""
ARRAYS_FREE = 64 * MIB
ARRAYS = 10_000
"""Arrays in an ``.npz`` file."""
TENSORS_BYTES = 32 * GIB
"""The tensors of a checkpoint."""
RECIPE_RUNS = 10_000
"""Combinations of a recipe's grid, before any are excluded."""
RECIPE_CASES = 10_000
"""Values that the cases under ``exclude`` and ``override`` of a recipe name together."""
RECIPE_PARENTS = 20
"""Recipes that extend one another in a row."""
