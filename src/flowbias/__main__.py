"""`python -m flowbias` is the command `flowbias`."""

from flowbias.cli import main

main()
