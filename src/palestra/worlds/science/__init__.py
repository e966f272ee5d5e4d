"""ScienceWorld: experiments of an elementary school, played as text. The ids are ``science:boil``, ``science:agentgym``, ….

The simulator is a Java program. ``jvm.py`` starts it and talks to it, ``pool.py`` gives each episode a place in one of a few
Java processes, and ``world.py`` is the environment.
"""
