"""The report page: one self-contained HTML file about a set of runs."""
