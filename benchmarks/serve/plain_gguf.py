"""python plain_gguf.py CHECKPOINT FILE: a GPT-2 with its vocabulary as GGUF, in an environment that has gguf."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

from llama_peer import write_plain

write_plain(Path(sys.argv[1]), Path(sys.argv[2]), words=True)
