"""`python -m bigfleet`: the same as `bigfleet`, where scripts are not on the path."""

from bigfleet.cli.bigfleet import main

main()
