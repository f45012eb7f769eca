"""`python -m jaxcontam`."""

from jaxcontam.entry import main

if __name__ == "__main__":
    main()
