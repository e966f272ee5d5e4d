"""The name of a start state."""

from typing import Any

import msgspec

from palestra.foundation.encoding import encode_msgpack

__all__ = ["Task"]


class _FrozenDict(dict[str, Any]):
    """A dict that cannot change, so that a task can be hashed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("the params of a task cannot be changed; make a new Task")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(encode_msgpack(self))

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        # Copying and unpickling fill a dict item by item, which this class refuses.
        return _FrozenDict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_FrozenDict":
        return self


_NO_PARAMS = _FrozenDict()


class Task(msgspec.Struct, frozen=True, gc=False):
    """A complete name of a start state: on any machine, the same task gives the same first observation and dynamics."""

    env: str
    """The id of the environment, or ``module:Class`` for one that is not registered."""
    seed: int = 0
    """The seed of the environment's random generator."""
    index: int | None = None
    """The row of the data set, for an environment that reads one."""
    split: str = "train"
    """The split of the data set."""
    params: dict[str, Any] = {}
    """Further parameters of the environment (JSON values only)."""

    def __post_init__(self) -> None:
        if not isinstance(self.params, _FrozenDict):
            msgspec.structs.force_setattr(self, "params", _FrozenDict(self.params) if self.params else _NO_PARAMS)

    @property
    def key(self) -> bytes:
        """Stable bytes for index, split and params; the environment's random generator is derived from them too."""
        if self.index is None and self.split == "train" and not self.params:
            return b""
        return encode_msgpack((self.index, self.split, self.params))
