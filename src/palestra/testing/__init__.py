"""Tools with which others test their own parts.

``conformance``  the result of a conformance suite, shared by the two below.
``engines``      the conformance suite of engines.
``sandboxes``    the conformance suite of sandboxes.
``clock``        an event loop with a virtual clock, for tests of timeouts and schedules.
``scripted``     an engine whose tokens a function writes, and a renderer of bytes, for tests of policies and agents.
``faults``       a proxy that breaks connections on purpose, for tests of clients and servers.
``latency``      a wrapper with which an environment answers late, for tests and studies of schedules.
``plugin``       the environment checks as pytest items: ``pytest --palestra my_env:Env``.

See docs/how-to/test-your-own.md.
"""
