"""python -m acr"""

from acr.cli import main

main()
