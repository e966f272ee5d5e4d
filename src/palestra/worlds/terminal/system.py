"""Families about a system: modes and schedules, processes, and configuration files that have drifted from a baseline."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from palestra.sandbox.layers import NewFile
from palestra.worlds.terminal.grading import Condition, Crontab, Lines, Modes, Settings, Workers
from palestra.worlds.terminal.scene import Scene, draw, sample, script, text_file
from palestra.worlds.terminal.texts import WORDS

__all__ = ["drift", "permissions", "processes"]

_MODES = (0o600, 0o640, 0o644, 0o700, 0o750, 0o755, 0o400, 0o444)


def permissions(rng: np.random.Generator, level: int) -> Scene:
    """Set modes by a policy; also write a crontab; also find files that anyone may write."""
    kinds = {"sh": 0o750, "key": 0o600, "conf": 0o640, "txt": 0o644}
    chosen = dict(zip(kinds, sample(rng, (0o700, 0o750, 0o600, 0o640, 0o644, 0o400), 4), strict=True))
    names = sample(rng, WORDS, int(rng.integers(8, 16)))
    files, expected = [], {}
    for name in names:
        kind = draw(rng, sorted(kinds))
        path = f"site/{draw(rng, ('bin', 'etc', 'lib/deep'))}/{name}.{kind}"
        files.append(text_file(path, f"{name}\n", draw(rng, _MODES)))
        expected[path] = chosen[kind]
    rules = ", ".join(f"*.{kind} mode {mode:o}" for kind, mode in chosen.items())
    goal = f"Set the modes of all files below site: {rules}. Change nothing else."
    solve = "; ".join(f"find site -name '*.{kind}' -exec chmod {mode:o} {{}} +" for kind, mode in chosen.items())
    schedules = _schedules(rng, 2 + level) if level else []
    if level:
        asked = " ".join(f"{about} it runs /opt/{job}." for about, _, job in schedules)
        goal += f" Then write the file crontab, one line per job (five fields and the command): {asked}"
        solve += "\n" + script("cat > crontab <<'END'", *(f"{fields} /opt/{job}" for _, fields, job in schedules), "END")
    if level == 2:
        secret = f"site/etc/{draw(rng, names)}.local"
        files.append(text_file(secret, "local\n", 0o666))
        goal += (
            " Finally, write the path of the only file below site that everyone may write, relative to your home, to open.txt."
        )
        solve = f"find site -type f -perm -o+w > open.txt\n{solve}"
        expected[secret] = 0o666

    checks: list[Condition] = [Modes("site", expected)]
    if level:
        checks.append(Crontab("crontab", [f"{fields} /opt/{job}" for _, fields, job in schedules]))
    if level == 2:
        checks.append(Lines("open.txt", [secret]))
    return Scene(goal, files, checks, [solve])


def _schedules(rng: np.random.Generator, count: int) -> list[tuple[str, str, str]]:
    schedules = []
    days = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    for job in sample(rng, WORDS, count):
        minute, hour, day, step = (int(rng.integers(low, high)) for low, high in ((0, 60), (0, 24), (0, 7), (1, 7)))
        step = (2, 3, 4, 5, 10, 15)[step - 1]
        schedules.append(
            draw(
                rng,
                (
                    (f"Every day at {hour:02}:{minute:02}", f"{minute} {hour} * * *", job),
                    (f"Every {days[day]} at {hour:02}:{minute:02}", f"{minute} {hour} * * {day}", job),
                    (f"Every {step} minutes", f"*/{step} * * * *", job),
                    (f"On day {day + 1} of every month at {hour:02}:{minute:02}", f"{minute} {hour} {day + 1} * *", job),
                ),
            )
        )
    return schedules


# -------------------------------------------------------------------------------------------------------------- processes


_WORKER = '#!/bin/bash\nexec 9<"$2"\nexec -a "worker-$1" sleep infinity\n'
_SUPERVISOR = '#!/bin/bash\nwhile :; do TOKEN=$2 bin/worker "$1" "$3"; done\n'


def processes(rng: np.random.Generator, level: int) -> Scene:
    """End the right worker and report its token; the same with supervisors that start workers again; the one that has a file.

    The workers are many and alike, so a script that picks one of them without the goal is seldom right.
    """
    count = int(rng.integers(14, 18)) + (0 if level else 6)  # a supervisor is a process, too
    drawn = sample(rng, WORDS, 2 * count)
    names = drawn[:count]
    data = names if level < 2 else drawn[count:]
    tokens = ["-".join(sample(rng, WORDS, 2)) for _ in names]
    files = [text_file("bin/worker", _WORKER, 0o755), text_file("bin/supervisor", _SUPERVISOR, 0o755)]
    files += [text_file(f"data/{name}.db", f"{name}\n") for name in data]
    lines = []
    for slot in sample(rng, range(count), count):
        words = f"{names[slot]} {tokens[slot]} data/{data[slot]}.db"
        started = f"exec setsid bin/supervisor {words}" if level else _started(*words.split())
        lines.append(f"({started}) >/dev/null 2>&1 </dev/null &")
    counted = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c ^worker-"
    ready = f"until [ $({counted}) -ge {count} ]; do sleep 0.01; done"
    setup = script("set +m", *lines, "disown -a", ready, "set -m")
    which = f"the process worker-{names[0]}" if level < 2 else f"the worker process that has the file data/{data[0]}.db open"
    again = " Something starts it again when it ends; make sure that it stays ended." if level else ""
    goal = (
        f"Several worker processes run in the background. Write the value of the environment variable TOKEN of {which} to "
        f"answer.txt, then end this process.{again} Leave all other workers running."
    )
    checks: list[Condition] = [Workers(sorted(names[1:])), Lines("answer.txt", [tokens[0]])]
    return Scene(goal, files, checks, [_ended(names[0], data[0], level)], setup)


def _started(name: str, token: str, path: str) -> str:
    return f"TOKEN={token} exec setsid bin/worker {name} {path}"


def _ended(name: str, data: str, level: int) -> str:
    test = f"grep -qsz '^worker-{name}$' $d/cmdline"
    if level == 2:
        test = f"grep -qsz '^worker-' $d/cmdline && ls -l $d/fd 2>/dev/null | grep -q data/{data}.db"
    running = f"grep -qsz '^worker-{name}$' /proc/[0-9]*/cmdline"
    if level:
        running += " || grep -qsz '^bin/supervisor$' /proc/$q/cmdline"
    return script(
        f"p=$(for d in /proc/[0-9]*; do {test} && basename $d; done | head -1)",
        "tr '\\0' '\\n' < /proc/$p/environ | sed -n 's/^TOKEN=//p' > answer.txt",
        "q=$(ps -o ppid= -p $p | tr -d ' '); kill $q $p" if level else "kill $p",
        f"while {running}; do sleep 0.01; done",
    )


# ------------------------------------------------------------------------------------------------------------------ drift


class _Hosts(NamedTuple):
    """A baseline, and the configurations of hosts, half of whose values differ from it."""

    base: dict[str, int]
    configs: dict[str, dict[str, int]]
    files: list[NewFile]


def drift(rng: np.random.Generator, level: int) -> Scene:
    """List the hosts that differ in a key; mend some keys; mend large differences, except where exceptions allow them."""
    keys = sample(rng, WORDS, int(rng.integers(20, 28)))
    base = {key: int(rng.integers(100, 1000)) for key in keys}
    hosts = sample(rng, WORDS, int(rng.integers(6, 12)))
    shifts = rng.integers(1, 51, size=(len(hosts), len(keys))) * rng.choice([-1, 0, 0, 1], size=(len(hosts), len(keys)))
    configs = {
        host: {key: base[key] + shift for key, shift in zip(keys, row, strict=True)}
        for host, row in zip(hosts, shifts.tolist(), strict=True)
    }
    files = [text_file("baseline.conf", _config(base, keys))]
    files += [text_file(f"hosts/{host}.conf", _config(configs[host], sample(rng, keys, len(keys)))) for host in hosts]
    return (_differing, _some_keys, _large_differences)[level](rng, _Hosts(base, configs, files))


_FORM = "baseline.conf has lines 'key = value'; so has every file of the folder hosts, in any order. "
_SIDES: Mapping[str, tuple[str, str, Callable[[int, int], int]]] = {
    "above": ("-gt", "now[key] - base[key]", lambda now, base: now - base),
    "below": ("-lt", "base[key] - now[key]", lambda now, base: base - now),
    "away from": ("-ne", "abs(now[key] - base[key])", lambda now, base: abs(now - base)),
}
"""Ways to differ from the baseline: the operator of ``test``, the difference in the oracle's program, and the same here."""


def _differing(rng: np.random.Generator, hosts: _Hosts) -> Scene:
    asked = [
        (key, side, differing)
        for key, base in hosts.base.items()
        for side, (_, _, difference) in _SIDES.items()
        if len(differing := sorted(host for host, now in hosts.configs.items() if difference(now[key], base) > 0)) > 1
    ]
    key, side, expected = draw(rng, asked)
    how = "differs from" if side == "away from" else f"is {side}"
    goal = _FORM + (
        f"Write the names of the files in which the value of {key} {how} the baseline's to answer.txt, one per line, sorted, "
        "without folder and ending."
    )
    read = f"sed -n 's/^{key} = //p'"
    solve = (
        f"b=$({read} baseline.conf); for f in hosts/*.conf; do [ $({read} $f) {_SIDES[side][0]} $b ] && basename $f .conf; "
        "done | sort > answer.txt"
    )
    return Scene(goal, hosts.files, [Lines("answer.txt", expected)], [solve])


def _some_keys(rng: np.random.Generator, hosts: _Hosts) -> Scene:
    keys = sample(rng, list(hosts.base), int(rng.integers(2, 5)))
    goal = _FORM + (
        f"Set the values of {', '.join(keys[:-1])} and {keys[-1]} in every file of hosts to the baseline's. Leave all other "
        "values as they are, also those that differ."
    )
    wanted = {host: {**now, **{key: hosts.base[key] for key in keys}} for host, now in hosts.configs.items()}
    return Scene(goal, hosts.files, [_settings(wanted)], [_mended(f"key in {keys}")])


def _large_differences(rng: np.random.Generator, hosts: _Hosts) -> Scene:
    side, bound, free = draw(rng, list(_SIDES)), int(rng.integers(5, 30)), sample(rng, list(hosts.base), 2)
    _, program, difference = _SIDES[side]
    keys = [key for key in hosts.base if key not in free]
    large = [
        (host, key) for host, now in hosts.configs.items() for key in keys if difference(now[key], hosts.base[key]) > bound
    ]
    allowed = [pair for pair in large[1:] if rng.random() < 0.4]  # at least one value has to be mended
    goal = _FORM + (
        f"Set every value in hosts that is more than {bound} {side} the baseline's back to the baseline's, except the values "
        f"of {free[0]} and {free[1]}. exceptions.txt lists hosts and keys that may differ, too. Leave all other values as they "
        "are."
    )
    wanted = {host: dict(now) for host, now in hosts.configs.items()}
    for host, key in large:
        wanted[host][key] = hosts.configs[host][key] if (host, key) in allowed else hosts.base[key]
    listed = text_file("exceptions.txt", "# host key\n" + "".join(f"{host} {key}\n" for host, key in allowed))
    solve = _mended(f"{program} > {bound} and key not in {free} and (host, key) not in kept", "exceptions.txt")
    return Scene(goal, [*hosts.files, listed], [_settings(wanted)], [solve])


def _mended(condition: str, exceptions: str = "") -> str:
    """Return a program that sets the values for which ``condition`` holds to the baseline's."""
    return script(
        "python3 - <<'END'",
        "import glob, os",
        "read = lambda p: {k: int(v) for k, v in (l.split(' = ') for l in open(p))}",
        "base = read('baseline.conf')",
        *([f"kept = {{tuple(l.split()) for l in open('{exceptions}')}}"] if exceptions else []),
        "for path in glob.glob('hosts/*.conf'):",
        "    host, now = os.path.basename(path)[:-5], read(path)",
        "    for key in now:",
        f"        if {condition}: now[key] = base[key]",
        "    open(path, 'w').writelines(f'{k} = {v}\\n' for k, v in now.items())",
        "END",
    )


def _settings(wanted: dict[str, dict[str, int]]) -> Settings:
    return Settings({f"hosts/{host}.conf": {key: str(value) for key, value in now.items()} for host, now in wanted.items()})


def _config(values: dict[str, int], order: Sequence[str]) -> str:
    return "".join(f"{key} = {values[key]}\n" for key in order)
