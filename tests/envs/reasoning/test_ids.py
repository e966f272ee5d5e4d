import palestra
from palestra.envs.reasoning.ids import FLOORS, GENERATORS, SLOW

NAMES = {name for names in GENERATORS.values() for name in names.split()}


def test_every_generator_has_an_id_and_is_listed_once() -> None:
    assert {known.id for known in palestra.list_envs("rg:*")} == {f"rg:{name}" for name in NAMES}
    assert len(NAMES) == sum(len(names.split()) for names in GENERATORS.values()) == 106


def test_the_tables_name_nothing_else() -> None:
    assert set(FLOORS) <= NAMES
    assert SLOW <= NAMES
