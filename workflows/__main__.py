"""``python -m eigensweep.workflows`` is the command line."""

from eigensweep.workflows.main import main

if __name__ == "__main__":
    main()
