import palestra
from palestra.registry import Need

palestra.register(
    "demo:ParityOfDigits-v0",
    "my_package.parity:Parity",
    levels={"easy": {"digits": 1}, "hard": {"digits": 6}},
    default_level="hard",
    tags={"arithmetic"},
    description="Even or odd?",
    needs=[Need(label="my_package", module="my_package", fix="pip install my_package")],
)
