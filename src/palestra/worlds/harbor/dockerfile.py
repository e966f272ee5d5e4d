"""The part of the Dockerfile language that a box can execute, as data.

``read_dockerfile`` returns an ``ImageRecipe``: the base image, the steps in order, and the variables and working folder at the
end. It needs the variables and the working folder of the base image, because ``$PATH`` and relative paths mean those. What is
outside the subset becomes a sentence in ``ImageRecipe.refused`` that names the line, and nothing is executed. Instructions that
do not change files (``CMD``, ``EXPOSE``, ``LABEL``, …) are ignored, because Harbor starts its own shell.
"""

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["DEFAULT_PATH", "Copy", "Folder", "ImageRecipe", "Run", "Step", "fetches", "read_dockerfile"]

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The ``PATH`` of an image that sets none, as docker has it."""

_IGNORED = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "HEALTHCHECK", "STOPSIGNAL", "VOLUME"})
_VARIABLE = re.compile(r"\\(.)|\$(?:(\w+)|\{(\w+)(?:(:[-+])([^}]*))?\})")
_HEREDOC = re.compile(r"\d*<<(-?)(['\"]?)([\w.-]+)\2")
"""A whole word that begins a here-document, as docker reads it: ``1<<3`` inside of another word and ``<<<`` do not."""
_ARITHMETIC = re.compile(r"\$\(\(.*?\)\)")
_FETCHING = re.compile(
    r"\b(?:apt(?:-get)?\s+(?:-\S+\s+)*(?:update|install|upgrade)|apk\s+add|(?:yum|dnf)\s+install|curl|wget|git\s+clone"
    r"|(?:npm|yarn|pnpm)\s+(?:install|ci|add|i)\b|npx|uvx|uv\s+(?:sync|add|run|pip|tool|python)|cargo\s+install|go\s+(?:get|install)"
    r"|gem\s+install|conda\s+install|(?:pip3?|python3?\s+-m\s+pip)\s+(?:install|download))\b"
)
_LOCAL = re.compile(r"--no-index|--find-links|localhost|127\.0\.0\.1|file://")


class Run(NamedTuple):
    """A command, run by ``/bin/sh -c``."""

    line: int
    command: str
    variables: tuple[tuple[str, str], ...]
    workdir: str
    user: str = ""
    """The last ``USER`` before it."""


class Copy(NamedTuple):
    """Files of the context, copied to ``target``."""

    line: int
    sources: tuple[str, ...]
    target: str
    """An absolute path. It ends with a slash if it is a folder."""
    mode: int | None = None


class Folder(NamedTuple):
    """``WORKDIR``: a folder that is made if it is missing."""

    line: int
    path: str


Step = Run | Copy | Folder


@dataclass
class ImageRecipe:
    """A Dockerfile, read."""

    image: str = ""
    base: dict[str, str] = field(default_factory=dict)
    """The variables of the base image."""
    steps: list[Step] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """What ``ENV`` sets."""
    workdir: str = "/"
    user: str = ""
    refused: list[str] = field(default_factory=list)
    """Sentences about what a box cannot do."""


class _Instruction(NamedTuple):
    line: int
    name: str
    value: str
    body: str = ""
    """The text of a here-document."""
    end: str = ""
    """The word that ends the here-document; empty if there is none."""
    fault: str = ""


def read_dockerfile(text: str, variables: Mapping[str, str] = {}, workdir: str = "/", user: str = "") -> ImageRecipe:
    """Return what ``text`` builds. Never raises: what cannot be read is refused.

    Args:
        text: The Dockerfile.
        variables: The variables of the base image.
        workdir: The working folder of the base image.
        user: The user of the base image.
    """
    recipe = ImageRecipe(base={"PATH": DEFAULT_PATH, **variables}, workdir=workdir or "/", user=user)
    arguments: dict[str, str] = {}
    for instruction in _instructions(text):
        try:
            if instruction.fault:
                raise ValueError(instruction.fault)
            _take(recipe, instruction, arguments)
        except RecursionError:
            recipe.refused.append(f"Dockerfile line {instruction.line}: the list is nested too deeply")
        except ValueError as error:
            recipe.refused.append(f"Dockerfile line {instruction.line}: {error}")
    if not recipe.image and not recipe.refused:
        recipe.refused.append("the Dockerfile has no FROM")
    return recipe


def fetches(script: str) -> str:
    """Return the first command of a shell script that needs a network, or an empty text."""
    for line in re.sub(r"\\\n", " ", script).splitlines():
        code = line.partition(" #")[0] if not line.lstrip().startswith("#") else ""
        match = _FETCHING.search(code)
        if match and not _LOCAL.search(code):
            return " ".join(match[0].split())
    return ""


# ------------------------------------------------------------------------------------------------------------------- reading


def _instructions(text: str) -> Iterator[_Instruction]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first, joined = number, ""
        while number < len(lines):
            line = lines[number]
            number += 1
            if line.lstrip().startswith("#") or (joined and not line.strip()):
                continue  # comments and blank lines inside an instruction do not count
            joined += line.rstrip()
            if not joined.endswith("\\"):
                break
            joined = joined[:-1]
        name, _, value = joined.strip().partition(" ")
        if not name:
            continue
        instruction = _Instruction(first + 1, name.upper(), value.strip())
        documents = _heredocs(value) if instruction.name in ("RUN", "COPY", "ADD") else []
        if documents:
            instruction, taken = _with_body(instruction, documents, lines[number:])
            number += taken
        yield instruction


def _heredocs(value: str) -> list[re.Match[str]]:
    words = _words(_ARITHMETIC.sub("", value))
    return [match for word in words if (match := _HEREDOC.fullmatch(word))]


def _with_body(instruction: _Instruction, documents: list[re.Match[str]], following: list[str]) -> tuple[_Instruction, int]:
    """Return the instruction with its here-document, and the number of lines that this takes."""
    if len(documents) > 1:
        return instruction._replace(fault="several here-documents in one instruction need docker or podman"), 0
    tabs, end = documents[0][1], documents[0][3]
    lines = [line.lstrip("\t") for line in following] if tabs else following
    if end not in lines:
        return instruction._replace(fault=f"the here-document has no end: no line is {end}"), 0
    count = lines.index(end)
    return instruction._replace(body="\n".join(lines[:count]), end=end), count + 1


def _take(recipe: ImageRecipe, instruction: _Instruction, arguments: dict[str, str]) -> None:
    variables = {**arguments, **recipe.base, **recipe.variables}
    if instruction.name == "FROM":
        _take_from(recipe, _replaced(instruction.value, arguments))
    elif instruction.name == "ARG":
        name, equals, value = instruction.value.partition("=")
        if not equals:
            raise ValueError(f"ARG {name} has no default, and Harbor passes no arguments")
        arguments[name] = _replaced(value.strip("\"'"), variables)
    elif instruction.name == "ENV":
        recipe.variables.update(_pairs(instruction.value, variables))
    elif instruction.name == "WORKDIR":
        folder = _replaced(instruction.value.strip("\"'"), variables)
        recipe.workdir = posixpath.normpath(posixpath.join(recipe.workdir, folder))
        recipe.steps.append(Folder(instruction.line, recipe.workdir))
    elif instruction.name == "USER":
        recipe.user = _replaced(instruction.value, variables)
    elif instruction.name == "RUN":
        recipe.steps.append(Run(instruction.line, _command(instruction), tuple(variables.items()), recipe.workdir, recipe.user))
    elif instruction.name in ("COPY", "ADD"):
        recipe.steps.append(_copied(instruction, variables, recipe.workdir))
    elif instruction.name not in _IGNORED:
        raise ValueError(f"a box does not execute {instruction.name}")


def _take_from(recipe: ImageRecipe, value: str) -> None:
    words = [word for word in value.split() if not word.startswith("--")]
    if recipe.image:
        raise ValueError("a second FROM (a build of several stages) needs docker or podman")
    if not words:
        raise ValueError("FROM names no image")
    recipe.image = words[0]


def _command(instruction: _Instruction) -> str:
    value = instruction.value
    while value.startswith("--"):
        flag, _, value = value.partition(" ")
        if not flag.startswith("--mount=type=cache"):
            raise ValueError(f"RUN {flag} needs docker or podman")
        value = value.lstrip()
    if instruction.end and not _HEREDOC.fullmatch(value):
        return f"{value}\n{instruction.body}\n{instruction.end}\n"
    if instruction.end:
        if instruction.body.startswith("#!"):
            raise ValueError("a here-document with an interpreter of its own needs docker or podman")
        return instruction.body
    if value.startswith("["):
        try:
            return shlex.join(json.loads(value))
        except (ValueError, TypeError):
            return value  # as docker does: it is a shell command then
    return value


def _copied(instruction: _Instruction, variables: Mapping[str, str], workdir: str) -> Copy:
    value, mode = instruction.value, None
    if instruction.end:
        raise ValueError(f"{instruction.name} of a here-document needs docker or podman")
    while value.startswith("--"):
        flag, _, value = value.partition(" ")
        value = value.lstrip()
        if flag.startswith("--chmod=") and re.fullmatch(r"0?[0-7]{3}", flag[8:]):
            mode = int(flag[8:], 8)
        elif flag.partition("=")[2] not in ("root", "root:root", "0", "0:0") or not flag.startswith("--chown"):
            raise ValueError(f"{instruction.name} {flag} needs docker or podman")
    words = json.loads(value) if value.startswith("[") else shlex.split(value)
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"{instruction.name}: the list has items that are not texts")
    if len(words) < 2:
        raise ValueError(f"{instruction.name} needs a source and a target")
    *sources, target = (_replaced(word, variables) for word in words)
    for source in sources:
        if "://" in source or source.startswith("git@"):
            raise ValueError(f"{instruction.name} {source} needs a network")
        if instruction.name == "ADD" and re.search(r"\.(?:tar|tgz|tbz2?|txz|tar\.\w+)$", source):
            raise ValueError(f"ADD {source} unpacks an archive, which needs docker or podman")
    folder = target.endswith("/") or target in (".", "..") or len(sources) > 1
    path = posixpath.normpath(posixpath.join(workdir, target))
    return Copy(instruction.line, tuple(sources), f"{path.rstrip('/')}/" if folder else path, mode)


def _pairs(value: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    words = _words(value)
    if not words or "=" not in words[0]:  # the old form: ENV NAME the rest
        name, _, rest = value.partition(" ")
        if not rest:
            raise ValueError(f"ENV {name} has no value")
        yield name, _replaced(rest.strip(), variables)
        return
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f'ENV: "{word}" is not NAME=VALUE')
        yield name, _unquoted(text, variables)


def _words(value: str) -> list[str]:
    """Return the words of ``value`` with their quotes."""
    return re.findall(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", value)


def _unquoted(text: str, variables: Mapping[str, str]) -> str:
    parts = re.findall(r"""'[^']*'|"(?:[^"\\]|\\.)*"|(?:[^\s"'\\]|\\.)+""", text)
    return "".join(part[1:-1] if part[0] == "'" else _replaced(part.strip('"'), variables) for part in parts)


def _replaced(text: str, variables: Mapping[str, str]) -> str:
    """Return ``text`` with ``$NAME``, ``${NAME}``, ``${NAME:-x}`` and ``${NAME:+x}`` replaced."""

    def value(match: re.Match[str]) -> str:
        escaped, plain, braced, operator, other = match.groups()
        if escaped is not None:
            return escaped
        have = variables.get(plain or braced, "")
        if operator == ":-":
            return have or other
        return (other if have else "") if operator == ":+" else have

    return _VARIABLE.sub(value, text)
