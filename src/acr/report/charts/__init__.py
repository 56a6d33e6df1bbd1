"""Charts as plain dicts in the form plotly.js reads, one module per subject."""
