"""Ray: placement, restarts and transport. The only module that imports Ray, and only when a provider is entered.

Anyone who can reach a Ray cluster can run code on it, so token authentication is on unless the user has switched it off
(``RAY_AUTH_MODE``). Ray looks for the token in ``RAY_AUTH_TOKEN``, in the file that ``RAY_AUTH_TOKEN_PATH`` names, and in
``~/.ray/auth_token``; for a new cluster on this machine it makes one.

A worker is an async actor. Ray restarts it without limit (``max_restarts=-1``) and never repeats its calls, because the
dispatcher decides what a lost call means. A worker for which there is no room waits until a node with room joins.
"""

import asyncio
import logging
import os
import sys
import warnings
from contextlib import suppress
from typing import Any

from palestra.cluster.config import Pool
from palestra.cluster.providers import Lost, WorkerHandle
from palestra.cluster.worker import JobOrders, Opened, RolloutWorker
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install

__all__ = ["RayProvider", "connect"]

_CALLS_AT_ONCE = 1000
_LOCAL_OBJECTS = 256 * 2**20
"""Bytes of the object store of a cluster that this process starts."""


def connect(address: str = "auto", **options: Any) -> Any:
    """Connect Ray to the cluster at ``address``. ``options`` go to ``ray.init`` if it starts a new cluster."""
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    if mode != "token":
        warnings.warn(f"RAY_AUTH_MODE={mode}: anyone who can reach this Ray cluster can run code on it", stacklevel=2)
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "200")  # a busy machine misses the default
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 starves workers beside two busy processes
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra(f"a cluster needs Ray: {how_to_install('cluster')}") from error
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
    here: dict[str, Any] = {"object_store_memory": _LOCAL_OBJECTS, "include_dashboard": False, **options}
    try:
        ray.init(address=address, **quiet, **(here if address == "local" else {}))
    except ConnectionError as error:
        if address != "auto":
            raise UsageError(f"no Ray cluster answers at {address}: {error}") from None
        ray.init(address="local", **quiet, **here)
    except ray.exceptions.AuthenticationError as error:
        raise UsageError(f"the Ray cluster at {address} refused the token (RAY_AUTH_TOKEN): {error}") from None
    return ray


class RayWorker(RolloutWorker):
    """A worker that knows its node."""

    async def open(self) -> Opened:
        import ray

        return (await super().open())._replace(node=ray.get_runtime_context().get_node_id()[:8])


class RayHandle:
    """A worker in an actor of Ray."""

    def __init__(self, ray: Any, pool: Pool) -> None:
        self._ray = ray
        self._gone = ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, ray.exceptions.NodeDiedError
        self._options: dict[str, Any] = {
            "num_cpus": pool.cpus,
            "resources": pool.resources or None,
            "runtime_env": pool.runtime_env or None,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": _CALLS_AT_ONCE,
        }
        if pool.memory:
            self._options["memory"] = int(pool.memory * 1e9)
        self._concurrency = pool.concurrency
        self._failed_starts = 0
        self._replaced = self._pid = 0
        self._actor = self._start()

    def _start(self) -> Any:
        return self._ray.remote(RayWorker).options(**self._options).remote(self._concurrency)

    async def open(self) -> Opened:
        try:
            opened: Opened = await self._actor.open.remote()
            while opened.pid == self._replaced:  # the old process still answers while it ends
                await asyncio.sleep(0.05)
                opened = await self._actor.open.remote()
        except self._ray.exceptions.ActorDiedError as error:
            # Ray will not restart it: its constructor failed, or its owner ended it.
            self._failed_starts += 1
            if self._failed_starts >= 3:
                raise UsageError(f"workers cannot be started: {error}") from error
            self._actor = self._start()
            raise Lost(str(error)) from error
        except self._gone as error:
            raise Lost(str(error)) from error
        self._failed_starts = 0
        self._pid = opened.pid
        return opened

    async def exchange(self, session: str, orders: JobOrders) -> bytes:
        try:
            batch: bytes = await self._actor.exchange.remote(session, orders)
        except self._gone as error:
            raise Lost(str(error)) from error
        return batch

    async def replace(self) -> None:
        self._replaced = self._pid
        with suppress(*self._gone):
            self._ray.kill(self._actor, no_restart=False)

    async def close(self) -> None:
        with suppress(Exception):  # Ray itself may be gone
            self._ray.kill(self._actor)


class RayProvider:
    """Workers that Ray places. Entering connects to the cluster, or starts one here, which ends when the provider is left."""

    def __init__(self, address: str = "auto", **options: Any) -> None:
        self._address = address
        self._options = options
        self._handles: list[RayHandle] = []
        self._owns = False

    async def __aenter__(self) -> "RayProvider":
        before = "ray" in sys.modules and sys.modules["ray"].is_initialized()
        self.ray = connect(self._address, **self._options)
        self._owns = not before
        return self

    async def __aexit__(self, *_: object) -> None:
        for handle in self._handles:
            await handle.close()
        if self._owns:
            self.ray.shutdown()

    async def room(self, pool: Pool) -> int:
        """How many workers fit on the living nodes, counting the room that others use now."""
        needs = {"CPU": pool.cpus, **pool.resources}
        living = [node["Resources"] for node in await asyncio.to_thread(self.ray.nodes) if node["Alive"]]
        fits = [min(int(have.get(name, 0) // need) for name, need in needs.items() if need) for have in living]
        return max(1, sum(fits)) if any(needs.values()) else len(living)

    def start(self, pool: Pool) -> WorkerHandle:
        handle = RayHandle(self.ray, pool)
        self._handles.append(handle)
        return handle
