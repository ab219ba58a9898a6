"""``make accuracy``: see the package ``accuracy`` beside this file."""

from accuracy.__main__ import main

if __name__ == "__main__":
    main()
