"""`python -m metamatrix`."""

from metamatrix.cli import main

main()
