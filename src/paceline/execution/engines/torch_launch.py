"""Start one rank per device with torchrun, and end with whoever asked for it.

Standard library and torch only. Arguments: number of ranks, engine file, request file.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from engine import die_with_parent


def main():
    """Run the ranks; the status is that of the first that failed."""
    die_with_parent()
    from torch.distributed.run import main as torchrun

    num_ranks, engine_path, request_path = sys.argv[1:4]
    options = ["--standalone", "--nproc-per-node", num_ranks, "--max-restarts", "0"]
    torchrun([*options, engine_path, request_path])


if __name__ == "__main__":
    main()
