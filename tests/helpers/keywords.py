"""The keywords of `acr.run` for editors and type checkers, written from the config and the methods' options.

`python tests/helpers/keywords.py` writes `src/acr/keywords.py` again; a test compares the two.
"""

import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import acr.keywords
from acr.config import RunConfig
from acr.methods.method import REGISTRY, method_class

FILE = Path(acr.keywords.__file__)
EXPLICIT = ("method", "dataset", "out", "options")
"""Parameters that `acr.run` names itself."""
ALSO = {"network": "Callable[..., object]"}
"""What a field takes in Python beside what it holds: a function is stored by its name."""
HEAD = '''"""The keywords of :func:`acr.run`, so that editors complete them and type checkers find a misspelt one.

Written by ``python tests/helpers/keywords.py`` from the fields of :class:`acr.config.RunConfig` and the options of this
package's methods. Options of other packages' methods are given as ``acr.run(..., options={"name": value})``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

'''


def content() -> str:
    """The text of the module."""
    fields = [("RunConfig", RunConfig.model_fields)]
    fields += [(method_class(name).name, method_class(name).Options.model_fields) for name in BUILT_IN]
    lines, seen = [], set(EXPLICIT)
    for owner, declared in fields:
        for name, field in declared.items():
            if name not in seen:
                seen.add(name)
                kind = " | ".join(filter(None, [typed(field.annotation, field.metadata), ALSO.get(name)]))
                lines += [f"    {name}: {kind}", said(owner, field.description)]
    keywords = 'class RunKeywords(TypedDict, total=False):\n    """What ``acr.run`` takes by keyword."""\n\n'
    return HEAD + "\n" + keywords + "\n".join(lines) + "\n"


BUILT_IN = [name for name, where in REGISTRY.items() if isinstance(where, str)]


def said(owner: str, text: str | None) -> str:
    """The docstring of a field."""
    text = text if owner == "RunConfig" else f"{text} ({owner})"
    one = f'    """{text}"""'
    if len(one) <= 120:
        return one
    return textwrap.fill(f'"""{text}', 116, initial_indent="    ", subsequent_indent="    ") + '\n    """'


def typed(annotation: Any, metadata: Any = ()) -> str:
    """A type as source text; what the config converts may also be given as text."""
    read = any("Validator" in type(part).__name__ for part in metadata)
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return typed(inner, more)
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(repr(value) for value in get_args(annotation))}]".replace("'", '"')
    if get_origin(annotation) is tuple:
        inner = typed(get_args(annotation)[0])
        return f"Sequence[{inner}] | str" + (f" | {inner}" if inner == "int" else "")
    members = get_args(annotation)
    if members:
        return " | ".join(dict.fromkeys(word for member in members for word in typed(member).split(" | ")))
    names = {int: "int", float: "float", bool: "bool", str: "str", type(None): "None", Path: "str | Path"}
    return names[annotation] + (" | str" if read and annotation is float else "")


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
    print(f"Written: {FILE}")
