"""The commands behind the command line, one file per group. They parse, call and print, and contain no logic."""
