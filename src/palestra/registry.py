"""Environment ids: what is registered under them, and how an id becomes an environment.

An id reads ``namespace:Family-vN`` or ``namespace:Family-vN-level``; without a level it means the family's default one. A
registration names its class by reference (``module:Class``), so listing two hundred environments imports none of them.
``module:Class`` is itself an id for a class that nobody registered. ``scheme:place#id`` is ``id`` somewhere else
(``remote:http://host:port#game:Sudoku-v0``): the same tasks under the same names, played by whatever registered the scheme.

Packages bring their own environments through the entry-point group ``palestra.envs``: each entry point names a module that
calls ``register`` when it is imported. They are loaded the first time an id is not found or the list is asked for.
"""

import difflib
import importlib.util
import os
import re
import shutil
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from palestra.core import AsyncEnv, Env
from palestra.errors import MissingExtra, UnknownEnv, UsageError
from palestra.references import reference_of, resolve
from palestra.views import Blocking, Direct, Guarded, InWorker

__all__ = [
    "ENTRY_POINT_GROUP",
    "EnvFactory",
    "EnvSpec",
    "Need",
    "WrapperReference",
    "build",
    "list_envs",
    "make",
    "make_async",
    "register",
    "register_later",
    "register_scheme",
    "spec",
    "unregister",
]

ENTRY_POINT_GROUP = "palestra.envs"

EnvFactory = Callable[..., Env | AsyncEnv]
WrapperFactory = Callable[[AsyncEnv], AsyncEnv]


@dataclass(frozen=True)
class WrapperReference:
    """A wrapper named by ``module:function``, imported when the first environment is made with it."""

    reference: str

    def __call__(self, env: AsyncEnv) -> AsyncEnv:
        wrapped = resolve(self.reference)(env)
        assert isinstance(wrapped, AsyncEnv), f"{self.reference} is not a wrapper"
        return wrapped


@dataclass(frozen=True, kw_only=True)
class Need:
    """Something an environment cannot run without."""

    label: str
    """What people call it: ``ScienceWorld``."""
    module: str = ""
    """The Python module to look for."""
    extra: str = ""
    """The extra of this package that brings it."""
    program: str = ""
    """The program to look for."""
    variable: str = ""
    """The environment variable that names it."""
    argument: str = ""
    """The keyword of the class that names it as well: whoever passes it needs nothing else."""
    fix: str = ""
    """What to type, where it is not ``pip install "palestra[extra]"``."""

    def met(self) -> bool:
        """Whether it is here. Looks, does not import."""
        if self.module and not _is_importable(self.module):
            return False
        if self.variable and self.variable not in os.environ:
            return False
        return not self.program or shutil.which(self.program) is not None

    @property
    def remedy(self) -> str:
        """The command that brings it."""
        return self.fix or (f'pip install "palestra[{self.extra}]"' if self.extra else "not found")


@dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """What is known of an id without importing its class."""

    id: str
    entry: str | EnvFactory
    """``module:Class``, or the class itself."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    """``GuessTheNumber`` of ``game:GuessTheNumber-v0-easy``."""
    level: str = ""
    levels: tuple[str, ...] = ()
    """All levels of the family, the default one first."""
    tags: frozenset[str] = frozenset()
    max_turns: int | None = None
    needs: tuple[Need, ...] = ()
    wrappers: tuple[WrapperFactory, ...] = ()
    """Applied innermost first."""
    description: str = ""

    @property
    def namespace(self) -> str:
        """``game`` of ``game:GuessTheNumber-v0-easy``."""
        return self.id.partition(":")[0]

    def missing(self, given: Container[str] = ()) -> tuple[Need, ...]:
        """What is not here, for somebody who passes the keywords ``given``."""
        return tuple(need for need in self.needs if need.argument not in given and not need.met())

    def factory(self, given: Container[str] = ()) -> EnvFactory:
        """The class or function that builds the environment, or ``MissingExtra``."""
        if missing := self.missing(given):
            first, *others = missing
            also = "".join(f" (and {need.label}: not found)" for need in others)
            raise MissingExtra(f'"{self.id}" needs {first.label}: {first.remedy}{also}')
        found = resolve(self.entry) if isinstance(self.entry, str) else self.entry
        if not callable(found):
            raise UsageError(f'"{self.id}" names {self.entry}, which is not a class or function')
        return found

    def reference(self) -> str:
        """The factory's name, by which another process can find it."""
        return self.entry if isinstance(self.entry, str) else reference_of(self.entry)


_specs: dict[str, EnvSpec] = {}
_schemes: dict[str, EnvSpec] = {}
_later: list[str] = []
_plugins_loaded = False


def register(
    id: str,
    entry: str | EnvFactory,
    *,
    levels: Mapping[str, Mapping[str, Any]] | None = None,
    default_level: str = "",
    kwargs: Mapping[str, Any] | None = None,
    **details: Any,
) -> None:
    """Register ``entry`` under ``id``, and under ``id-level`` for each of ``levels`` (level → its keyword arguments).

    ``details`` are fields of ``EnvSpec``: ``tags``, ``max_turns``, ``needs``, ``wrappers``, ``description``. The plain ``id``
    means ``default_level``, which is the first one unless named.
    """
    if not re.fullmatch(r"[\w.-]+:[\w./-]+", id):
        raise UsageError(f'"{id}" is not an id: write namespace:Name-v0 (letters, digits and ._/- only)')
    family = re.sub(r"-v\d+.*$", "", id.partition(":")[2])
    details["tags"] = frozenset(details.get("tags", ()))
    for name in ("needs", "wrappers"):
        details[name] = tuple(details.get(name, ()))
    base = EnvSpec(id=id, entry=entry, kwargs=dict(kwargs or {}), family=family, **details)
    if not levels:
        _add(_with_turns(base))
        return
    default = default_level or next(iter(levels))
    if default not in levels:
        raise UsageError(f'"{id}" has no level "{default}" to be its default; there are {list(levels)}')
    ordered = (default, *(level for level in levels if level != default))
    for level in ordered:
        own = replace(base, id=f"{id}-{level}", kwargs={**base.kwargs, **levels[level]}, level=level, levels=ordered)
        _add(_with_turns(own))
        if level == default:
            _add(_with_turns(replace(own, id=id)))


def register_scheme(scheme: str, entry: str, *, needs: Sequence[Need] = ()) -> None:
    """Let every id ``scheme:place#id`` mean ``entry("place#id", …)``. Nothing is imported until such an id is made.

    Its tasks bear the name ``id``: where a task is played is no part of it.
    """
    if not scheme.isidentifier():
        raise UsageError(f'"{scheme}" is no scheme: write one word')
    _schemes[scheme] = EnvSpec(id=scheme, entry=entry, needs=tuple(needs))


def _with_turns(spec: EnvSpec) -> EnvSpec:
    return spec if spec.max_turns is not None else replace(spec, max_turns=spec.kwargs.get("max_turns"))


def _add(spec: EnvSpec) -> None:
    known = _specs.get(spec.id)
    if known is not None and known != spec:
        raise UsageError(f'"{spec.id}" is registered already, as {known.entry}; unregister it first')
    _specs[spec.id] = spec


def unregister(id: str) -> None:
    """Forget ``id`` and its levels."""
    known = spec(id)
    for name in [id, *(f"{id}-{level}" for level in known.levels)]:
        _specs.pop(name, None)


def spec(id: str) -> EnvSpec:
    """What is registered under ``id``; a scheme's address and a ``module:Class`` reference are specs of their own."""
    scheme, _, address = id.partition(":")
    if scheme in _schemes and id not in _specs:
        return replace(_schemes[scheme], id=address.partition("#")[2] or id, kwargs={"address": address})
    if id not in _specs:
        _load_plugins()
    if id in _specs:
        return _specs[id]
    if not _is_namespace(id.partition(":")[0]) and _is_reference(id):
        return EnvSpec(id=id, entry=id, family=id.rpartition(":")[2])
    raise UnknownEnv(_unknown(id))


def list_envs(pattern: str = "*") -> list[EnvSpec]:
    """Every spec whose id matches ``pattern`` (``*`` and ``?``; a bare word means a namespace or a part of the id), sorted."""
    _load_plugins()
    if not any(mark in pattern for mark in "*?["):
        pattern = f"{pattern}:*" if _is_namespace(pattern) else f"*{pattern}*"
    return sorted((known for known in _specs.values() if fnmatchcase(known.id, pattern)), key=lambda known: known.id)


def make(id: str, *, wrappers: Sequence[WrapperFactory] = (), **kwargs: Any) -> Guarded:
    """The environment ``id`` as a plain blocking Gym object. ``kwargs`` go to its class, over the level's own."""
    known = spec(id)
    env = _call(known, known.factory(kwargs), kwargs)
    every = (*known.wrappers, *wrappers)
    if isinstance(env, Env) and not every:
        return Guarded(env, known.id)
    return Guarded(Blocking(_wrapped(env if isinstance(env, AsyncEnv) else Direct(env), every)), known.id)


def make_async(id: str, *, wrappers: Sequence[WrapperFactory] = (), **kwargs: Any) -> AsyncEnv:
    """The environment ``id`` for the event loop. A blocking one runs in a worker process."""
    known = spec(id)
    return _wrapped(build(known, kwargs), (*known.wrappers, *wrappers))


def build(known: EnvSpec, kwargs: Mapping[str, Any]) -> AsyncEnv:
    """The bare async view of what ``known`` names, without wrappers."""
    factory = known.factory(kwargs)
    if isinstance(factory, type) and issubclass(factory, Env) and factory.blocking:
        return InWorker(known.reference(), {**known.kwargs, **kwargs}, factory)
    env = _call(known, factory, kwargs)
    if isinstance(env, AsyncEnv):
        return env
    if env.blocking:
        raise UsageError(f'"{known.id}" built a blocking {type(env).__name__}; register the class, which a worker can build')
    return Direct(env)


def _wrapped(env: AsyncEnv, wrappers: Iterable[WrapperFactory]) -> AsyncEnv:
    for wrap in wrappers:
        env = wrap(env)
    return env


def _call(known: EnvSpec, factory: EnvFactory, kwargs: Mapping[str, Any]) -> Env | AsyncEnv:
    env = factory(**{**known.kwargs, **kwargs})
    if not isinstance(env, Env | AsyncEnv):
        raise UsageError(f'"{known.id}" built a {type(env).__name__}, which is neither an Env nor an AsyncEnv')
    return env


def _is_reference(id: str) -> bool:
    module, _, name = id.partition(":")
    if not name or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return False
    return module == "__main__" or _is_importable(module)


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _is_namespace(name: str) -> bool:
    # Some namespaces are also modules of the standard library (math, code): the ids come first.
    return any(known.namespace == name for known in _specs.values())


def _unknown(id: str) -> str:
    near = difflib.get_close_matches(id, _specs, n=1, cutoff=0.6)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    namespace = id.partition(":")[0]
    return f'no environment "{id}".{guess} (palestra list{f" {namespace}" if _is_namespace(namespace) else ""})'


def register_later(reference: str) -> None:
    """Call the function that ``reference`` names before anything is listed or said to be unknown.

    For families of many ids, or of ids whose registration has to read something: whoever does not use them does not pay.
    """
    _later.append(reference)


def _load_plugins() -> None:
    global _plugins_loaded
    while _later:
        resolve(_later.pop())()
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib import metadata  # costs as much as half of this package

    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            point.load()
        except Exception as error:  # somebody else's package must not take ours down
            warnings.warn(f"the plugin {point.name} ({point.value}) failed to load: {error!r}", stacklevel=3)
