"""Files that survive a crash: locks, the identity of a run, append-only files, files that are replaced atomically, the ledger.

Every command that keeps results claims its folder first::

    with claim(folder, Identity(run="evaluation", config=config)) as held:
        ...  # read and write

``claim`` locks the folder and then compares its ``config.json`` with the current request. So two processes cannot write into
one folder, and one folder never mixes two runs. Everything inside a folder is opened through ``Inside``, which follows no link.
"""

from palestra.durable.files import replacing, sync_file, sync_folder, write_whole
from palestra.durable.guard import CONFIG, Claim, Identity, claim
from palestra.durable.inside import Inside
from palestra.durable.lines import LineWriter, keep_lines, read_lines
from palestra.durable.lock import lock_folder

__all__ = [
    "CONFIG",
    "Claim",
    "Identity",
    "Inside",
    "LineWriter",
    "claim",
    "keep_lines",
    "lock_folder",
    "read_lines",
    "replacing",
    "sync_file",
    "sync_folder",
    "write_whole",
]
