import asyncio

from palestra.grading.maths import MathsGrader


async def main() -> None:
    async with MathsGrader() as grader:
        print(await grader.equivalent("2\\sqrt{2}", "\\sqrt{8}"))
        print(await grader.equivalent("9^{9^{9^9}}", "\\sqrt{8}"))  # stopped after 0.5 s of CPU time


asyncio.run(main())
