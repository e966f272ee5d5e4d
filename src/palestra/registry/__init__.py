"""Environment ids: what is registered under them, and how an id becomes an environment.

``namespace:Family-vN-level``  a registered id; without a level it means the family's default level
``module:Class``               a class that is not registered
``data:FILE?key=value``        a file of questions, with options
``remote:URL#id``              the environment ``id`` of a server: the same tasks under the same names

A registration names its class by reference (``module:Class``), so listing two hundred environments imports none of them.

Packages add environments through the entry-point group ``palestra.envs``: each entry point names a module that calls
``register`` when it is imported. They are loaded the first time that an id is not found or ids are listed. Palestra's own ids
are registered when the registry is first used.
"""

import re
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any

from palestra.adapters import AsyncLimited, Blocking, Direct, Guarded, Limited, TurnLimit, unblocked
from palestra.core import AsyncEnv, Env
from palestra.errors import UnknownEnv, UsageError
from palestra.foundation.references import is_reference, resolve, search_here
from palestra.registry.own import OWN
from palestra.registry.specs import EnvFactory, EnvSpec, Need, WrapperFactory, is_importable, parse_options

__all__ = [
    "ENTRY_POINT_GROUP",
    "EnvFactory",
    "EnvSpec",
    "Need",
    "WrapperFactory",
    "build",
    "family_of",
    "is_pattern",
    "list_envs",
    "make",
    "make_async",
    "parse_options",
    "print_envs",
    "register",
    "register_files",
    "register_scheme",
    "registered",
    "spec",
    "typed",
    "unregister",
]

ENTRY_POINT_GROUP = "palestra.envs"

_specs: dict[str, EnvSpec] = {}
_schemes: dict[str, EnvSpec] = {}
_files: dict[str, bool] = {}
"""Schemes whose ids name a file and options → whether the values of the options stay text."""
_whole: set[str] = set()
"""Schemes whose tasks have the whole id as their name."""
_waiting = set(OWN)
"""Palestra's own namespaces that have not been loaded yet."""
_loading = threading.RLock()
_plugins_loaded = False
_plugin = ""
"""The entry point that is being loaded."""


_DETAILS = frozenset({"tags", "max_turns", "needs", "wrappers", "description", "rows"})
"""The fields of ``EnvSpec`` that ``register`` takes by name."""


@cache
def family_of(id: str) -> str:
    """Return an id without version and level: ``game:GuessTheNumber`` for ``game:GuessTheNumber-v0-easy``."""
    return re.sub(r"-v\d+(-.*)?$", "", id)


def register(
    id: str,
    entry: str | EnvFactory,
    *,
    levels: Mapping[str, Mapping[str, Any]] | None = None,
    default_level: str = "",
    kwargs: Mapping[str, Any] | None = None,
    **details: Any,
) -> None:
    """Register an environment under an id, in this process.

    Args:
        id: ``namespace:Name-v0``.
        entry: The class, a function that returns an environment, or ``module:name`` of either.
        levels: Level → keyword arguments of the class. Registers ``id-level`` for each level.
        default_level: The level that the plain ``id`` means; the first by default.
        kwargs: Keyword arguments of the class, for every level.
        details: Fields of ``EnvSpec``: ``tags``, ``max_turns``, ``needs``, ``wrappers``, ``description``, ``rows``. Any other
            keyword is one of the class, as in ``kwargs``.

    Raises:
        UsageError: The id is malformed, or registered already as something else.

    Example::

        palestra.register("demo:Parity-v0", Parity, levels={"easy": {"digits": 1}, "hard": {"digits": 6}}, max_turns=1)
    """
    if not re.fullmatch(r"[\w.-]+:[\w./-]+", id):
        raise UsageError(f'"{id}" is not an id: write namespace:Name-v0 (letters, digits and ._/- only)')
    _claim(id.partition(":")[0])
    family = family_of(id).partition(":")[2]
    if (turns := details.get("max_turns")) is not None and turns < 1:
        raise UsageError(f'"{id}": max_turns must be at least 1, got {turns}')
    unnamed = {name: details.pop(name) for name in details.keys() - _DETAILS}
    details["tags"] = frozenset(details.get("tags", ()))
    for name in ("needs", "wrappers"):
        details[name] = tuple(details.get(name, ()))
    base = EnvSpec(id=id, entry=entry, kwargs={**unnamed, **(kwargs or {})}, family=family, **details)
    if not levels:
        _add(_with_turns(base))
        return
    default = default_level or next(iter(levels))
    if default not in levels:
        raise UsageError(f'"{id}" has no level "{default}" to be its default; there are {list(levels)}')
    ordered = (default, *(level for level in levels if level != default))
    for level in ordered:
        of_level = replace(base, id=f"{id}-{level}", kwargs={**base.kwargs, **levels[level]}, level=level, levels=ordered)
        _add(_with_turns(of_level))
        if level == default:
            _add(_with_turns(replace(of_level, id=id)))


def register_scheme(scheme: str, entry: str, *, whole: bool = False, **details: Any) -> None:
    """Let every id ``scheme:place#id`` mean ``entry(address="place#id", …)``. Nothing is imported until such an id is made.

    Args:
        scheme: One word, before the colon.
        entry: ``module:name`` of the class or function.
        whole: Record the whole id as the name of its tasks. By default it is ``id``, because a server at another address
            plays the same tasks.
        details: Fields of ``EnvSpec``, such as ``needs``.
    """
    if not scheme.isidentifier():
        raise UsageError(f'"{scheme}" is not a scheme: write one word')
    _claim(scheme)
    _schemes[scheme] = EnvSpec(id=scheme, entry=entry, **{**details, "needs": tuple(details.get("needs", ()))})
    if whole:
        _whole.add(scheme)


def register_files(scheme: str, entry: str, *, as_text: bool = True, **details: Any) -> None:
    """Let every id ``scheme:path?key=value&key=value`` mean ``entry(path="path", key="value", …)``.

    The name of its tasks is the whole id: a path and options on this machine.

    Args:
        scheme: One word, before the colon.
        entry: ``module:name`` of the class or function.
        as_text: Pass every value as text. Otherwise a number, ``true``, ``false`` and ``null`` become values of Python.
        details: Fields of ``EnvSpec``, such as ``rows``.
    """
    register_scheme(scheme, entry, **details)
    _files[scheme] = as_text


def _with_turns(spec: EnvSpec) -> EnvSpec:
    return spec if spec.max_turns is not None else replace(spec, max_turns=spec.kwargs.get("max_turns"))


def _add(spec: EnvSpec) -> None:
    earlier = _specs.get(spec.id)
    if earlier is not None and earlier != spec:
        raise UsageError(f'"{spec.id}" is registered already, as {earlier.entry}; unregister it first')
    _specs[spec.id] = spec


def unregister(id: str) -> None:
    """Remove ``id`` and its levels."""
    env_spec = spec(id)
    for name in [id, *(f"{id}-{level}" for level in env_spec.levels)]:
        _specs.pop(name, None)


def spec(id: str) -> EnvSpec:
    """Return what is known about ``id``: a registered id, ``module:Class``, or the address of a scheme.

    Raises:
        UnknownEnv: There is no such environment; the message suggests the nearest id.
    """
    scheme, _, address = id.partition(":")
    _load(scheme)
    if scheme in _files:
        path, options = parse_options(address, as_text=_files[scheme])
        if "path" in options:
            raise UsageError(f'"{id}" names two files: write the path before the question mark only')
        return replace(_schemes[scheme], id=id, kwargs={"path": path, **options})
    if scheme in _schemes and id not in _specs:
        name = "" if scheme in _whole else address.partition("#")[2]
        return replace(_schemes[scheme], id=name or id, kwargs={"address": address})
    if id not in _specs:
        _load_all()
    if id in _specs:
        return _specs[id]
    if is_reference(id) and not _is_namespace(scheme) and (scheme == "__main__" or is_importable(scheme)):
        return EnvSpec(id=id, entry=id, family=id.rpartition(":")[2])
    raise UnknownEnv(_unknown(id))


def registered(id: str) -> EnvSpec | None:
    """Return what is registered under ``id``, or ``None``.

    Use this, and not ``spec``, for names from a file or a peer: it imports no ``module:Class``, opens no file and connects to
    no server.
    """
    _load(id.partition(":")[0])
    if id not in _specs:
        _load_all()
    return _specs.get(id)


def typed(names: Iterable[str]) -> None:
    """Let ``module:Class`` among ``names``, and among their options, be found in the working folder too.

    Every command calls this for the names that the user typed or that stand in the user's recipe. Never call it for names
    from a run folder or a server.
    """
    parts = (part.rpartition("=")[2] for name in names for part in re.split(r"[?&]", name))
    if any(is_reference(part) and not _is_known(part) for part in parts):
        search_here()


def is_pattern(name: str) -> bool:
    """Return whether ``name`` is a pattern of ids. An address such as ``remote:http://[::1]:8000#ID`` is not."""
    scheme = name.partition(":")[0]
    _load(scheme)
    return scheme not in _schemes and any(mark in name for mark in "*?[")


def list_envs(pattern: str = "*") -> list[EnvSpec]:
    """Return the specs of all registered ids that match ``pattern``, sorted by id.

    Args:
        pattern: ``game:*-easy``, with ``*`` and ``?``; or a word: a namespace (``game``) or a part of the id (``sudoku``).

    Example::

        [spec.id for spec in palestra.list_envs("game:*-easy")]
    """
    _load_all()
    if not is_pattern(pattern):
        pattern = f"{pattern}:*" if _is_namespace(pattern) else f"*{pattern}*"
    return [env_spec for id, env_spec in sorted(_specs.items()) if fnmatchcase(id, pattern)]


def print_envs(pattern: str = "*") -> None:
    """Print every registered id that matches ``pattern``, as ``list_envs`` finds them, with its description."""
    for env_spec in list_envs(pattern):
        print(f"{env_spec.id}  {env_spec.description}".rstrip())


def make(id: str, *, wrappers: Sequence[str | WrapperFactory] = (), **kwargs: Any) -> Guarded:
    r"""Make an environment with the Gym interface: ``reset`` and ``step`` return when they are done.

    Args:
        id: A registered id, ``module:Class``, ``data:FILE`` or ``remote:URL#ID``.
        wrappers: Functions from environment to environment, such as wrapper classes, or their names as on the command line,
            such as ``"TurnLimit?turns=5"``; the first is innermost.
        kwargs: Keyword arguments of the class. They replace those of the level.

    Returns:
        An environment that is also a context manager, which closes it. It refuses a step before ``reset`` and after the end.

    Raises:
        UnknownEnv: There is no such id; the message suggests the nearest one.
        MissingExtra: Something that the environment needs is not installed; the message says what to type.

    Example::

        with palestra.make("game:GuessTheNumber-v0") as env:
            observation, info = env.reset(seed=0)
            observation, reward, terminated, truncated, info = env.step(r"\boxed{25}")
    """
    env_spec = spec(id)
    env = _call(env_spec, env_spec.factory(kwargs), kwargs)
    if isinstance(env, Env) and not env_spec.wrappers and not wrappers:
        return Guarded(_limited(env_spec, env, kwargs), env_spec.id)
    return Guarded(
        Blocking(_wrapped(_with_own_wrappers(env_spec, _view(env_spec, env, kwargs), kwargs), wrappers)), env_spec.id
    )


def make_async(id: str, *, wrappers: Sequence[str | WrapperFactory] = (), **kwargs: Any) -> AsyncEnv:
    """Make an environment with the async interface: ``await env.reset()``, ``await env.step(action)``, ``await env.close()``.

    A class with ``blocking = True`` runs in a worker process.

    Args:
        id: A registered id, ``module:Class``, ``data:FILE`` or ``remote:URL#ID``.
        wrappers: Functions from environment to environment, such as wrapper classes, or their names as on the command line,
            such as ``"TurnLimit?turns=5"``; the first is innermost.
        kwargs: Keyword arguments of the class. They replace those of the level.

    Example::

        env = palestra.make_async("game:GuessTheNumber-v0")
        observation, info = await env.reset(seed=0)
    """
    return _wrapped(build(spec(id), kwargs), wrappers)


def build(env_spec: EnvSpec, kwargs: Mapping[str, Any], *, isolate: bool = False) -> AsyncEnv:
    """Build what ``env_spec`` names as an async environment, with its wrappers and turn limit.

    ``isolate`` runs a plain environment in a worker process, whatever its class says.
    """
    factory = env_spec.factory(kwargs)
    if isinstance(factory, type) and issubclass(factory, Env) and (factory.blocking or isolate):
        from palestra.adapters.workers import InWorker  # needs asyncio, which "import palestra" does without

        merged = {**env_spec.kwargs, **kwargs}
        if wrong := _wrong_options(env_spec, factory, merged):  # here, and not as a failure of every episode
            raise UsageError(wrong)
        named = [need.variable for need in env_spec.needs if need.variable]
        turns = _inner_turns(env_spec, kwargs)
        env: AsyncEnv = InWorker(env_spec.reference(), merged, factory, max_turns=turns, variables=named)
        return _with_own_wrappers(env_spec, env, kwargs)
    built = _call(env_spec, factory, kwargs)
    if isinstance(built, Env) and built.blocking:
        raise UsageError(
            f'"{env_spec.id}" built a blocking {type(built).__name__}; register the class, which a worker can build'
        )
    return _with_own_wrappers(env_spec, _view(env_spec, built, kwargs), kwargs)


def _view(env_spec: EnvSpec, env: Env | AsyncEnv, kwargs: Mapping[str, Any]) -> AsyncEnv:
    if isinstance(env, AsyncEnv):
        return AsyncLimited(env, _inner_turns(env_spec, kwargs))
    return Direct(_limited(env_spec, env, kwargs))


def _limited(env_spec: EnvSpec, env: Env, kwargs: Mapping[str, Any]) -> Env:
    """Return ``env`` with its turn limit, or as it is if it counts its turns itself."""
    counts_itself = env.counts_turns and (
        _inner_turns(env_spec, kwargs) is None or "max_turns" in {**env_spec.kwargs, **kwargs}
    )
    return env if counts_itself else Limited(env, _inner_turns(env_spec, kwargs))


def _with_own_wrappers(env_spec: EnvSpec, env: AsyncEnv, kwargs: Mapping[str, Any]) -> AsyncEnv:
    turns = _turns(env_spec, kwargs)
    wrapped = _wrapped(env, env_spec.wrappers)
    return TurnLimit(wrapped, turns) if env_spec.wrappers and turns is not None else wrapped


def _inner_turns(env_spec: EnvSpec, kwargs: Mapping[str, Any]) -> int | None:
    """Return the registered limit if it counts the environment's own steps. With wrappers it counts the agent's turns."""
    return None if env_spec.wrappers else _turns(env_spec, kwargs)


def _turns(env_spec: EnvSpec, kwargs: Mapping[str, Any]) -> int | None:
    turns: int | None = kwargs.get("max_turns", env_spec.max_turns)
    return turns


def _wrapped(env: AsyncEnv, wrappers: Iterable[str | WrapperFactory]) -> AsyncEnv:
    for wrapper in wrappers:
        # By its name, because wrappers stand above the registry.
        wrap: WrapperFactory = resolve("palestra.wrappers:named_wrapper")(wrapper) if isinstance(wrapper, str) else wrapper
        if not callable(wrap):
            raise UsageError(f"wrappers holds {wrap!r:.80}, expected the class or the name of a wrapper")
        env = wrap(env)
    return env


def _call(env_spec: EnvSpec, factory: EnvFactory, kwargs: Mapping[str, Any]) -> Env | AsyncEnv:
    keywords = {**env_spec.kwargs, **kwargs}
    try:
        env = unblocked(factory(**keywords))
    except TypeError as error:
        if wrong := _wrong_options(env_spec, factory, keywords):
            raise UsageError(wrong) from error
        raise
    if not isinstance(env, Env | AsyncEnv):
        raise UsageError(f'"{env_spec.id}" built a {type(env).__name__}, which is neither an Env nor an AsyncEnv')
    return env


def _wrong_options(env_spec: EnvSpec, factory: EnvFactory, keywords: Mapping[str, Any]) -> str:
    """Return what is wrong with the keyword arguments of a class, and which it takes; empty if they fit."""
    import difflib
    import inspect

    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a class that is written in C
        return ""
    try:
        signature.bind(**keywords)
    except TypeError as error:
        named = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        near = [guess for name in keywords if name not in named for guess in difflib.get_close_matches(name, named, n=1)]
        meant = f' Did you mean "{near[0]}"?' if near else ""
        return f'"{env_spec.id}": {error}.{meant} Its options are {", ".join(named) or "none"}.'
    return ""


def _is_known(name: str) -> bool:
    namespace = name.partition(":")[0]
    _load(namespace)
    if namespace in _schemes or name in _specs:
        return True
    _load_all()
    return _is_namespace(namespace)


def _is_namespace(name: str) -> bool:
    # Some namespaces are also modules of the standard library (math, code). The ids come first.
    return any(env_spec.namespace == name for env_spec in _specs.values())


def _unknown(id: str) -> str:
    import difflib

    near = difflib.get_close_matches(id, _specs, n=1, cutoff=0.6)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    namespace = id.partition(":")[0]
    if is_reference(id) and not _is_namespace(namespace) and not guess:
        guess = f" No module is called {namespace} either."
    return f'no environment "{id}".{guess} (palestra list{f" {namespace}" if _is_namespace(namespace) else ""})'


def _claim(namespace: str) -> None:
    """Let what is being registered have ids in ``namespace``, after Palestra's own ids there are registered."""
    if _plugin and namespace in OWN:
        raise UsageError(f'the namespace "{namespace}" is Palestra\'s own: register under another one')
    _load(namespace)


def _load(namespace: str) -> None:
    """Register Palestra's own ids of ``namespace``, unless that is done. A registration that is under way may call this."""
    if namespace in _waiting:
        with _loading:
            for module in OWN[namespace]:
                import_module(module)
            _waiting.discard(namespace)


def _load_all() -> None:
    """Register all of Palestra's own ids and those of other packages, unless that is done."""
    global _plugins_loaded, _plugin  # noqa: PLW0603 - the state of this process
    for namespace in OWN:
        _load(namespace)
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib import metadata  # costs as much as half of this package

    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        _plugin = point.name
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - a broken package of others must not break this one
            warnings.warn(f"the plugin {point.name} ({point.value}) failed to load: {error!r}", stacklevel=3)
        finally:
            _plugin = ""
