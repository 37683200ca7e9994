"""`python -m fused_embedding COMMAND`: the console script `fused-embedding`, after TensorFlow."""

import sys

from fused_embedding_cli import main

if __name__ == "__main__":
    main(sys.argv)
