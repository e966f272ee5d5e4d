"""Families about a system: modes and schedules, processes, and configuration files that have drifted from a baseline."""

from collections.abc import Sequence

import numpy as np

from palestra.envs.terminal.grading import Check, Crontab, Lines, Modes, Settings, Workers
from palestra.envs.terminal.scene import Scene, draw, sample, script, text_file
from palestra.envs.terminal.texts import WORDS

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

    checks: list[Check] = [Modes("site", expected)]
    if level:
        checks.append(Crontab("crontab", [f"{fields} /opt/{job}" for _, fields, job in schedules]))
    if level == 2:
        checks.append(Lines("open.txt", [secret]))
    return Scene(goal, files, checks, [solve])


def _schedules(rng: np.random.Generator, count: int) -> list[tuple[str, str, str]]:
    found = []
    days = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    for job in sample(rng, WORDS, count):
        minute, hour, day, step = (int(rng.integers(low, high)) for low, high in ((0, 60), (0, 24), (0, 7), (1, 7)))
        step = (2, 3, 4, 5, 10, 15)[step - 1]
        found.append(
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
    return found


# -------------------------------------------------------------------------------------------------------------- processes


_WORKER = '#!/bin/bash\nexec 9<"$2"\nexec -a "worker-$1" sleep infinity\n'
_SUPERVISOR = '#!/bin/bash\nwhile :; do TOKEN=$2 bin/worker "$1" "$3"; done\n'


def processes(rng: np.random.Generator, level: int) -> Scene:
    """End the right worker and report its token; one that a supervisor starts again; only the one that holds a file."""
    count = int(rng.integers(4, 8)) + level
    drawn = sample(rng, WORDS, 2 * count)
    names = drawn[:count]
    data = names if level < 2 else drawn[count:]
    tokens = ["-".join(sample(rng, WORDS, 2)) for _ in names]
    files = [text_file("bin/worker", _WORKER, 0o755), text_file("bin/supervisor", _SUPERVISOR, 0o755)]
    files += [text_file(f"data/{name}.db", f"{name}\n") for name in data]
    lines = []
    for place in sample(rng, range(count), count):
        words = f"{names[place]} {tokens[place]} data/{data[place]}.db"
        started = f"exec setsid bin/supervisor {words}" if level and not place else _started(*words.split())
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
    checks: list[Check] = [Workers(sorted(names[1:])), Lines("answer.txt", [tokens[0]])]
    return Scene(goal, files, checks, [_ended(names[0], data[0], level)], setup)


def _started(name: str, token: str, path: str) -> str:
    return f"TOKEN={token} exec setsid bin/worker {name} {path}"


def _ended(name: str, data: str, level: int) -> str:
    test = f"grep -qsz '^worker-{name}$' $d/cmdline"
    if level == 2:
        test = f"grep -qsz '^worker-' $d/cmdline && ls -l $d/fd 2>/dev/null | grep -q data/{data}.db"
    return script(
        f"p=$(for d in /proc/[0-9]*; do {test} && basename $d; done | head -1)",
        "tr '\\0' '\\n' < /proc/$p/environ | sed -n 's/^TOKEN=//p' > answer.txt",
        "kill $(ps -o ppid= -p $p) $p" if level else "kill $p",
        f"while grep -qsz -e '^worker-{name}$' -e '^bin/[s]upervisor$' /proc/[0-9]*/cmdline; do sleep 0.01; done",
    )


# ------------------------------------------------------------------------------------------------------------------ drift


def drift(rng: np.random.Generator, level: int) -> Scene:
    """List files that differ from a baseline; mend them; mend them except where exceptions allow it."""
    keys = sample(rng, WORDS, int(rng.integers(5, 9)))
    base = {key: str(int(rng.integers(1, 1000))) for key in keys}
    hosts = sample(rng, WORDS, int(rng.integers(6, 12)))
    configs = {host: dict(base) for host in hosts}
    drifted = sample(rng, hosts, int(rng.integers(2, len(hosts) - 1)))
    for host in drifted:
        for key in sample(rng, keys, int(rng.integers(1, 3))):
            configs[host][key] = str(int(base[key]) + int(rng.integers(1, 50)))
    differing = [(host, key) for host in drifted for key in keys if configs[host][key] != base[key]]
    allowed = [one for one in differing[1:] if rng.random() < 0.4]  # at least one value has to be mended
    files = [text_file("baseline.conf", _config(base, keys))]
    files += [text_file(f"hosts/{host}.conf", _config(configs[host], sample(rng, keys, len(keys)))) for host in hosts]
    if level == 0:
        goal = (
            "baseline.conf has lines 'key = value'; so has every file of the folder hosts, in any order. Write the names of "
            "the files that have a value other than the baseline's to answer.txt, one per line, sorted, without folder and "
            "ending."
        )
        expected = sorted(drifted)
        solve = (
            "sort baseline.conf > b; for f in hosts/*.conf; do sort $f | cmp -s - b || basename $f .conf; done "
            "| sort > answer.txt"
        )
        return Scene(goal, files, [Lines("answer.txt", expected)], [solve])
    goal = (
        "baseline.conf has lines 'key = value'; so has every file of the folder hosts, in any order. Set every value in hosts "
        "that differs from the baseline back to the baseline's."
    )
    wanted = {host: dict(base) for host in hosts}
    if level == 2:
        files.append(text_file("exceptions.txt", "".join(f"{host} {key}\n" for host, key in allowed) + "# host key\n"))
        goal += " exceptions.txt lists hosts and keys that may differ: leave these values as they are."
        for host, key in allowed:
            wanted[host][key] = configs[host][key]
    program = script(
        "python3 - <<'END'",
        "import glob, os",
        "read = lambda p: dict(l.strip().split(' = ') for l in open(p))",
        "base = read('baseline.conf')",
        "listed = open('exceptions.txt').readlines() if os.path.exists('exceptions.txt') else []",
        "kept = {tuple(l.split()) for l in listed if l[0] != '#'}",
        "for path in glob.glob('hosts/*.conf'):",
        "    host, now = os.path.basename(path)[:-5], read(path)",
        "    for key in now:",
        "        if (host, key) not in kept: now[key] = base[key]",
        "    open(path, 'w').writelines(f'{k} = {v}\\n' for k, v in now.items())",
        "END",
    )

    check = Settings({f"hosts/{host}.conf": wanted[host] for host in hosts})
    return Scene(goal, files, [check], [program])


def _config(values: dict[str, str], order: Sequence[str]) -> str:
    return "".join(f"{key} = {values[key]}\n" for key in order)
