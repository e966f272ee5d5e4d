"""Where tasks play: a ``Place`` builds the environments of a task, and opens shells over them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from palestra.envs.harbor.building import Built, build
from palestra.envs.harbor.classes import HOST, Placement, classify, images_of, recipe_of
from palestra.envs.harbor.schema import Environment
from palestra.envs.harbor.task import HarborTask, identity_of
from palestra.envs.harbor.users import has_users
from palestra.errors import MissingData, Unsupported
from palestra.sandbox.contract import MIB, Limits
from palestra.sandbox.roots import Root, RootCache
from palestra.sandbox.shell import Shells, shared_shells
from palestra.sandbox.shell_session import ShellSession

__all__ = ["Boxes", "Place", "limits_of", "placed"]

_MEMORY_MB, _STORAGE_MB = 2048, 512


def limits_of(environment: Environment) -> Limits:
    """Return the limits of a box for ``environment``. Files of the box lie in memory, which counts as the box's.

    Raises:
        Unsupported: The task asks for more memory than this machine has.
    """
    memory = (environment.memory_in_mb or _MEMORY_MB) * MIB
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory > machine:
        raise Unsupported(f"the task asks for {memory // MIB} MiB of memory, and this machine has {machine // MIB}")
    disk = min(environment.storage_in_mb or _STORAGE_MB, _STORAGE_MB) * MIB
    return Limits(
        wall_seconds=60.0,
        session_cpu_seconds=3600,
        process_memory=max(memory, 1024 * MIB),
        total_memory=memory + disk,
        file_bytes=disk,
        disk_bytes=disk,
        files=100_000,
        open_files=1024,
        processes=256,
        kept_output=256 * 1024,
    )


def placed(task: HarborTask, cache: RootCache, base: str) -> Placement:
    """Return the class of ``task`` on this machine. With ``base="host"``, every image has a root file system."""
    if base == HOST:
        return classify(task, {*cache.images(), *images_of(task)})
    return classify(task, cache.images(), cache.find)


class Place(ABC):
    """One kind of place."""

    name: str

    @abstractmethod
    async def build(self, task: HarborTask, context: Path, environment: Environment) -> Built:
        """Return the built environment of the agent, or of a separate verifier."""

    @abstractmethod
    def has(self, built: Built) -> bool:
        """Return whether ``built`` is still there."""

    @abstractmethod
    async def open(self, built: Built, environment: Environment, variables: Mapping[str, str]) -> ShellSession:
        """Open a shell over a built environment. Services of its image have ``variables``."""


class Boxes(Place):
    """Shell boxes on this machine.

    Args:
        cache: The root file systems of images.
        base: ``host`` plays every image over this machine's ``/usr``.
    """

    name = "box"

    def __init__(self, cache: RootCache, base: str) -> None:
        self._cache, self._base = cache, base
        self._stack = AsyncExitStack()
        self._pools: dict[tuple[Limits, str, bool], Shells] = {}

    async def build(self, task: HarborTask, context: Path, environment: Environment) -> Built:
        image = recipe_of(context, environment).image
        prepared = self._cache.find(identity_of(context, environment))
        root = Root(HOST, "") if self._base == HOST else prepared or self._cache.find(image)
        if root is None:
            raise MissingData(f"{task.name} is not prepared: no root file system for {image} (palestra harbor build --help)")
        users = has_users(task, recipe_of(context, environment, root))
        return await build(self._cache, context, environment, root, limits_of(environment), users=users)

    def has(self, built: Built) -> bool:
        return built.layer.is_dir()

    async def open(self, built: Built, environment: Environment, variables: Mapping[str, str]) -> ShellSession:
        shells = await self._pool((limits_of(environment), built.root, built.users))
        layer = os.open(built.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await shells.open_from(layer)
        finally:
            os.close(layer)

    async def _pool(self, key: tuple[Limits, str, bool]) -> Shells:
        if key not in self._pools:
            self._pools[key] = await self._stack.enter_async_context(shared_shells(*key))
        return self._pools[key]

    async def twin(self) -> "Boxes":
        """Return the same place for a copy of the environment, which may be closed later than this one."""
        twin = Boxes(self._cache, self._base)
        try:
            for key in self._pools:
                await twin._pool(key)
        except BaseException:
            await twin.close()
            raise
        return twin

    async def close(self) -> None:
        """Stop using the boxes."""
        self._pools.clear()
        await self._stack.aclose()
