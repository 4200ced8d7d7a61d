"""python -m headgate: the command line, where the script `headgate` is not on the path."""

from headgate.cli import main

if __name__ == "__main__":
    main()
