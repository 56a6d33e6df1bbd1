"""The commands behind the command line, one file a group. They parse, call and print; nothing else."""
