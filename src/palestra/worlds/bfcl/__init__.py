"""The multi-turn tasks of the Berkeley Function-Calling Leaderboard, over its eight simulated APIs.

``package`` reads the tasks, the functions' descriptions and the APIs' classes from the wheel ``bfcl-eval``, which
``palestra prefetch bfcl`` fetches. ``apis`` makes calls on the objects of one episode, ``dialogue`` is the environment.
"""
