"""The graders of all sites against hacks, counted: none of them passes."""

from tests.envs.web.sites.towns import ADDRESSES, check_hacks, templates_of

from palestra.envs.web.sites.errands import Town
from palestra.envs.web.sites.state import Change
from palestra.references import resolve

_OTHER = Change("comment", ("A second comment",))


def town_of(name: str) -> Town:
    return resolve(f"palestra.envs.web.sites.{name}.town:town")  # type: ignore[no-any-return]


def test_hundreds_of_wrong_states_do_not_pass() -> None:
    towns = {name: town_of(name) for name in ("shop", "forum", "tracker", "across")}
    tried = {
        name: sum(check_hacks(town, one, _OTHER) for one in templates_of(town) if town.errand(7, one).wanted)
        for name, town in towns.items()
    }
    print("wrong states, none of which passes:", tried)
    assert sum(tried.values()) >= 300


def test_thirty_addresses_are_tried_in_the_browser() -> None:
    assert sum(map(len, ADDRESSES.values())) >= 30
    assert all(len(set(paths)) == len(paths) for paths in ADDRESSES.values())
