"""`python -m ondol` is `ondol`."""

from ondol.cli.main import run

if __name__ == "__main__":
    run()
