"""Other projects' trainers and gyms: one file each, thin, tested against the real package. Nothing is loaded unasked.

Outward, Palestra's environments in their programs: ``agent_lightning``, ``areal``, ``art``, ``gem``, ``generators``,
``harbor``, ``inspect``, ``nemo_gym``, ``openenv``, ``openrlhf``, ``rl2``, ``skyrl_generator``, ``slime``, ``tinker``, ``trl``,
``verifiers`` and ``verl``. Inward, their environments as ids: ``browsergym``, ``gem``, ``gymnasium``, ``inspect_env``,
``openenv_env``, ``skyrl_rows``, ``textarena`` and ``verifiers_tasks``; ``ids`` registers their schemes. ``gem_programs`` runs
GEM's own programs.
"""
