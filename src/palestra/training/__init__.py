"""Trajectories to weights. Read in the order of the flow: ``groups``, ``advantage``, ``batch``, ``loss``, ``learner``.

``groups``, ``advantage``, ``horizon`` and ``ledger`` are NumPy and the standard library only; torch is imported by the modules
that need it and by nothing here, so that the mathematics can be read, tested and used without it.
"""
