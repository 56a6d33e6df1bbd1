"""Tables of results for LaTeX: a bare tabular, a table environment around it, a whole document around that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from acr.report.formats import Show, legend, mean_and_interval, parts
from acr.report.tables import Cell, ResultTable

SPECIAL = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
           "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$", "−": "$-$",
           "<": "$<$", ">": "$>$", "·": r"$\cdot$"}  # fmt: skip


def escape(text: str) -> str:
    """Text with every character that LaTeX would misread replaced.

    >>> escape("50 % & more")
    '50 \\\\% \\\\& more'
    """
    return "".join(SPECIAL.get(character, character) for character in text)


def tabular(table: ResultTable, show: Show = mean_and_interval) -> str:
    """The bare table, one text per cell as ``show`` has it; needs the package booktabs."""
    spans = [(group, len(list(columns))) for group, columns in groupby(table.columns, key=lambda column: column[0])]
    head = " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{escape(group)}}}" for group, n in spans)
    rules, start = [], 2
    for _, n in spans:
        rules.append(rf"\cmidrule(lr){{{start}-{start + n - 1}}}")
        start += n
    body: list[str] = []
    before = ""
    for i, (group, label) in enumerate(table.rows):
        if group != before:
            body += [r"\midrule"] if body else []
            body.append(rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{\emph{{{escape(group)}}}}} \\")
            before = group
        cells = [_cell(table, table.cells.get((i, j)), show) for j in range(len(table.columns))]
        body.append(" & ".join([escape(label), *cells]) + r" \\")
    return "\n".join([
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule", f"& {head} \\\\", " ".join(rules),
        "& " + " & ".join(escape(label) for _, label in table.columns) + r" \\", r"\midrule", *body, r"\bottomrule",
        r"\end{tabular}",
    ])  # fmt: skip


def _cell(table: ResultTable, cell: Cell | None, show: Show) -> str:
    """One cell; ours has its mean marked by rank and its interval in small type."""
    if cell is None:
        return ""
    if show is not mean_and_interval or cell.missing:
        return escape(show(table, cell))
    number, _, beside = mean_and_interval(table, cell).partition(" ")
    word = {1: rf"\textbf{{{number}}}", 2: rf"\underline{{{number}}}"}.get(cell.rank, number)
    return word + (rf"\,{{\scriptsize{escape(beside)}}}" if beside else "")


def table_environments(table: ResultTable) -> str:
    """One table environment per part (ours, printed, tests) for ``\\input``; needs booktabs and graphicx."""
    return "\n".join(_environment(table, title, show) for title, show in parts(table))


def _environment(table: ResultTable, title: str, show: Show) -> str:
    caption = escape(" ".join([f"{title}.", *(legend(table) if show is mean_and_interval else [])]))
    return "\n".join([
        r"\begin{table}[htbp]", r"\centering", rf"\caption{{{caption}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", tabular(table, show) + "}",
        r"\end{table}", "",
    ])  # fmt: skip


def document(inputs: Sequence[str], title: str, figures: Sequence[str] = ()) -> str:
    """A whole LaTeX document around table files and figure files, to compile as it is."""
    pictures = [rf"\begin{{figure}}[htbp]\centering\includegraphics[width=\linewidth]{{{name}}}\end{{figure}}"
                for name in figures]  # fmt: skip
    return "\n".join([
        r"\documentclass[a4paper]{article}", r"\usepackage[utf8]{inputenc}", r"\usepackage[T1]{fontenc}",
        r"\usepackage{booktabs}", r"\usepackage{graphicx}", r"\usepackage[landscape,margin=15mm]{geometry}",
        rf"\title{{{escape(title)}}}", r"\date{}", r"\begin{document}", r"\maketitle",
        *(rf"\input{{{name}}}" for name in inputs), *pictures, r"\end{document}", "",
    ])  # fmt: skip
