import asyncio

from palestra.foundation.encoding import ints
from palestra.testing.engines import EngineCase, conformance
from palestra.testing.scripted import ScriptedEngine


async def main() -> None:
    engine = ScriptedEngine(lambda prompt, sampling: range(10, 20))  # your own engine goes here
    case = EngineCase(engine, prompt=ints([5, 6, 7]), weights=None)
    problems = [result for result in await conformance(case) if result.problem]
    assert not problems, problems


asyncio.run(main())
