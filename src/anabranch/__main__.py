"""`python -m anabranch`."""

from anabranch.surfaces.cli.main import main

main()
