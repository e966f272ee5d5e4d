"""Palestra's box as an environment of Harbor: ``harbor run -e palestra.bridges.harbor:Box``. Tried with harbor 0.25.0.

A trial gets one box without network, in which Harbor's agents and verifiers run; no daemon is needed. The box stays open, so
processes that a command starts in the background, such as a tmux server, are there for the next command. Commands run one
after another. What a box cannot do (several services, GPUs, users other than root, mounts) is refused before the trial starts.

The image needs a root file system (``palestra harbor build``), or ``--ek base=host``. Harbor's default is a public network,
which a box does not have: ``--ek offline=true`` plays such tasks without one. ``Box`` is made when it is first used, since it
inherits from Harbor's ``BaseEnvironment``.
"""

from pathlib import Path
from typing import Any

from palestra.bridges.versions import framework
from palestra.worlds.harbor.schema import Environment
from palestra.worlds.harbor.session import Session

__all__ = ["Box"]  # noqa: F822 - Box is made by __getattr__

_ROOT = (None, "root", 0, "0")


class _Box:
    """What ``Box`` adds to Harbor's ``BaseEnvironment``."""

    def __init__(self, *args: Any, base: str = "", offline: bool = False, **kwargs: Any) -> None:
        self._base, self._offline = base, offline
        self._session: Any = None
        super().__init__(*args, **kwargs)

    def _validate_definition(self: Any) -> None:
        if self._host_mounts:
            raise ValueError("a box of Palestra has no mounts: leave out --mounts")

    def validate_network_policy_support(self: Any, network_policy: Any = None) -> None:
        super().validate_network_policy_support(network_policy)  # type: ignore[misc]
        if (network_policy or self.network_policy).network_mode.value == "public" and not self._offline:
            raise ValueError("the task wants a network, and a box has none: --ek offline=true plays it without one")

    async def start(self: Any, force_build: bool) -> None:
        config, names = self.task_env_config, ("docker_image", "workdir", "build_timeout_sec")
        sizes = {"memory_mb": self._effective_memory_mb, "storage_mb": self._effective_storage_mb}
        table = Environment(**{name: getattr(config, name) for name in names}, **sizes)
        self._session = await Session.start(self.environment_dir, table, self._base)
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        if self._session is not None:
            await self._session.close()

    async def exec(self: Any, command: str, cwd: Any = None, env: Any = None, timeout_sec: Any = None, user: Any = None) -> Any:
        if self._resolve_user(user) not in _ROOT:
            raise ValueError(f"a box has one user, root, and the task wants {self._resolve_user(user)}")
        if self._session is None:
            raise RuntimeError("the box has not been started")
        done = await self._session.run(command, cwd, self._merge_env(env) or {}, timeout_sec)
        return self.result(**done)

    async def upload_file(self, source_path: Any, target_path: str) -> None:
        await self._session.put(Path(source_path), target_path)

    async def download_file(self, source_path: str, target_path: Any) -> None:
        await self._session.get(source_path, Path(target_path))

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        await self._session.put(Path(source_dir), target_dir)

    async def download_dir(self, source_dir: str, target_dir: Any) -> None:
        await self._session.get(source_dir, Path(target_dir))


def __getattr__(name: str) -> Any:
    if name != "Box":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = framework("harbor", "harbor.environments.base", "BaseEnvironment", "ExecResult")
    offers = framework("harbor", "harbor.environments.capabilities", "EnvironmentCapabilities").EnvironmentCapabilities
    attributes = {"__module__": __name__, "__doc__": "A box of Palestra per trial of Harbor.", "result": base.ExecResult}
    body = {**attributes, "type": staticmethod(lambda: "palestra"), "capabilities": offers(disable_internet=True)}
    return globals().setdefault(name, type(base.BaseEnvironment)(name, (_Box, base.BaseEnvironment), body))
