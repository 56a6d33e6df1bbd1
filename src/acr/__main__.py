"""python -m acr"""

import os
import sys

# Python puts the current folder first on the path of `-m`, so that a json.py there would be executed as if it were
# Python's own. The command `acr` has no such entry, and neither has this one.
if not sys.flags.isolated and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from acr.cli import main

main()
