"""``python -m evergraph``: the command line, as ``evergraph`` runs it."""

from evergraph.cli.app import main

if __name__ == "__main__":
    main()
