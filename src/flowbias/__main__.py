"""`python -m flowbias` is the command `flowbias`."""

from flowbias.apps.cli import main

main()
