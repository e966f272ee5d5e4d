from rich.console import Console

import palestra
from palestra.checking import Status, render

report = palestra.check_env("game:GuessTheNumber-v0-easy", n=50)  # or "module:Class", or the class itself
Console().print(render(report))
assert report.ok, report.found(Status.FAIL)
