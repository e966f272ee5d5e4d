"""Resources that are shared per event loop."""

import asyncio
import threading

import pytest

from palestra.foundation.resources.sharing import Shared, SharedPerLoop


class Resource:
    def __init__(self, key: str) -> None:
        self.key = key
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def shared() -> SharedPerLoop[str, Resource]:
    return SharedPerLoop(Resource, lambda resource: resource.close())


async def test_users_of_a_key_share_one_resource_until_the_last_leaves() -> None:
    resources = shared()
    async with resources.use("a") as first:
        async with resources.use("a") as second, resources.use("b") as other:
            assert second is first
            assert other is not first
        assert (first.closed, other.closed) == (0, 1)
    assert first.closed == 1
    async with resources.use("a") as again:
        assert again is not first


async def test_an_error_of_a_user_releases_the_resource() -> None:
    resources = shared()
    with pytest.raises(KeyError):
        async with resources.use("a") as resource:
            raise KeyError
    assert resource.closed == 1


def test_event_loops_do_not_share() -> None:
    resources = shared()

    async def used() -> Resource:
        async with resources.use("a") as resource:
            return resource

    assert asyncio.run(used()) is not asyncio.run(used())


def test_one_resource_is_made_for_the_first_user_and_returned_to_the_last() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    shared = Shared(make)
    first, second = shared.hold(), shared.hold()
    assert first is second
    assert shared.release() is None
    assert shared.release() is first
    assert shared.hold() is made[1]
    assert len(made) == 2


def test_threads_that_hold_and_release_make_no_two_resources_at_once() -> None:
    alive: list[int] = []

    def make() -> int:
        assert not alive
        alive.append(1)
        return 1

    shared = Shared(make)
    shared.hold()

    def work() -> None:
        for _ in range(200):
            shared.hold()
            shared.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.users == 1
    assert shared.release() == 1
