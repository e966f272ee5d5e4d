"""The sentences of the invented world: what its documents say, and how questions ask for it.

Questions use other words than the documents where English has them, so that a question does not find its documents by the words
of its relations. The asides mention wrong persons, towns and firms in the words of the right ones.
"""

from palestra.worlds.deepsearch.graph import Aside, Relation

__all__ = ["ASIDES", "INTROS", "RELATIONS"]

RELATIONS = (
    # People.
    Relation(
        "birthplace",
        "person",
        ("{s} was born in {o}.", "The cradle of {s} stood in {o}.", "{s} came into the world in {o}."),
        ("the birthplace of {x}", "the native town of {x}"),
        target="town",
    ),
    Relation(
        "teacher",
        "person",
        ("{s} learned the trade from {o}.", "As an apprentice, {s} was taught by {o}.", "{s} studied for years under {o}."),
        ("the teacher of {x}", "the person who trained {x}"),
        target="person",
    ),
    Relation(
        "employer",
        "person",
        ("{s} earns a living at {o}.", "{s} is on the payroll of {o}.", "For many years {s} has worked for {o}."),
        ("the employer of {x}", "the firm that employs {x}"),
        target="firm",
    ),
    Relation(
        "foreword",
        "person",
        (
            "{s} wrote the foreword to {o}.",
            "The opening pages of {o} come from the pen of {s}.",
            "{s} introduced the readers to {o}.",
        ),
        ("the work with a preface by {x}", "the work whose preface is by {x}"),
        target="work",
    ),
    Relation(
        "birth",
        "person",
        (
            "The parish register of {o} records the baptism of {s}.",
            "{s} has celebrated birthdays since {o}.",
            "{s} is a child of the year {o}.",
        ),
        ending="In which year was {x} born?",
    ),
    # Towns.
    Relation(
        "mayor",
        "town",
        (
            "The town hall of {s} is led by {o}.",
            "The citizens of {s} elected {o} as head of the council.",
            "The chain of office of {s} is worn by {o}.",
        ),
        ("the mayor of {x}", "the person who governs {x}"),
        target="person",
    ),
    Relation(
        "twin",
        "town",
        (
            "{s} has a partnership with {o}.",
            "School classes of {s} and {o} visit each other under a treaty.",
            "{s} signed a charter of friendship with {o}.",
        ),
        ("the sister town of {x}", "the town twinned with {x}"),
        target="town",
    ),
    Relation(
        "taxpayer",
        "town",
        ("Most taxes of {s} are paid by {o}.", "The budget of {s} depends on {o}.", "The coffers of {s} are filled by {o}."),
        ("the largest taxpayer of {x}", "the firm whose taxes finance {x}"),
        target="firm",
    ),
    Relation(
        "delegation",
        "town",
        ("{s} sends a delegation to {o}.", "A group of citizens of {s} travels to {o}.", "{s} is represented at {o}."),
        ("the event attended by envoys of {x}", "the event visited by envoys of {x}"),
        target="event",
    ),
    Relation(
        "population",
        "town",
        ("{s} has {o} inhabitants.", "The last count found {o} people in {s}.", "{o} people live in {s}."),
        ending="How many inhabitants does {x} have?",
        key="the town of exactly {o} inhabitants",
    ),
    # Firms.
    Relation(
        "seat",
        "firm",
        ("The head office of {s} is in {o}.", "{s} is run from {o}.", "Letters to {s} go to {o}."),
        ("the seat of {x}", "the headquarters of {x}"),
        target="town",
    ),
    Relation(
        "founder",
        "firm",
        ("{s} was established by {o}.", "{s} goes back to an idea of {o}.", "The first owner of {s} was {o}."),
        ("the founder of {x}", "the person who started {x}"),
        target="person",
    ),
    Relation(
        "supplier",
        "firm",
        ("{s} buys its raw materials from {o}.", "Raw materials reach {s} from {o}.", "{s} is a customer of {o}."),
        ("the supplier of {x}", "the firm that supplies {x}"),
        target="firm",
    ),
    Relation(
        "namesake",
        "firm",
        (
            "{s} took its emblem from {o}.",
            "The emblem of {s} shows a scene of {o}.",
            "Over the gate of {s} stands a line of {o}.",
        ),
        ("the work that inspired the logo of {x}", "the work quoted in the logo of {x}"),
        target="work",
    ),
    Relation(
        "license",
        "firm",
        ("{s} trades under license {o}.", "The license of {s} bears the number {o}.", "License {o} was granted to {s}."),
        ("the license number of {x}",),
        key="the firm with license {o}",
    ),
    # Works.
    Relation(
        "author",
        "work",
        ("{s} is by {o}.", "{s} was created by {o}.", "{o} spent a decade on {s}."),
        ("the author of {x}", "the person who wrote {x}"),
        target="person",
    ),
    Relation(
        "setting",
        "work",
        ("{s} takes place in {o}.", "The plot of {s} unfolds in {o}.", "The heroes of {s} never leave {o}."),
        ("the setting of {x}", "the town portrayed in {x}"),
        target="town",
    ),
    Relation(
        "publisher",
        "work",
        ("{s} was brought out by {o}.", "{s} is sold by {o}.", "{o} put {s} on the market."),
        ("the publisher of {x}", "the firm that published {x}"),
        target="firm",
    ),
    Relation(
        "premiere",
        "work",
        (
            "{s} was first performed at {o}.",
            "The audience of {o} was the first to hear {s}.",
            "{s} had its first night during {o}.",
        ),
        ("the event of the premiere of {x}", "the event that saw the premiere of {x}"),
        target="event",
    ),
    Relation(
        "shelf",
        "work",
        ("Libraries keep {s} under the shelf mark {o}.", "The shelf mark of {s} is {o}.", "{s} stands in libraries at {o}."),
        ("the shelf mark of {x}",),
        key="the work with the shelf mark {o}",
    ),
    # Events.
    Relation(
        "venue",
        "event",
        ("{s} happens in {o}.", "The guests of {s} come together in {o}.", "The streets of {o} are closed for {s}."),
        ("the venue of {x}", "the town that hosts {x}"),
        target="town",
    ),
    Relation(
        "chair",
        "event",
        ("{s} is presided over by {o}.", "The gavel of {s} is in the hands of {o}.", "{o} opens and closes {s}."),
        ("the chair of {x}", "the person who chairs {x}"),
        target="person",
    ),
    Relation(
        "sponsor",
        "event",
        ("The costs of {s} are borne by {o}.", "{s} lives on the money of {o}.", "{o} pays for {s}."),
        ("the sponsor of {x}", "the firm that sponsors {x}"),
        target="firm",
    ),
    Relation(
        "first",
        "event",
        ("{s} has been held since {o}.", "The history of {s} begins in {o}.", "The oldest poster of {s} dates from {o}."),
        ending="In which year did {x} take place for the first time?",
    ),
)

INTROS = {
    "person": ("{s} is a person of some fame.", "{s} is known far beyond the county.", "Much has been written about {s}."),
    "town": ("{s} is a town.", "{s} is a town on a slow river.", "Travelers know {s} as a quiet town."),
    "firm": ("{s} is a firm.", "{s} is a firm with a long tradition.", "{s} is a family firm."),
    "work": (
        "{s} is a work of literature.",
        "{s} is a work in five parts.",
        "{s} is a work that many people quote and few have read.",
    ),
    "event": ("{s} is an event.", "{s} is an event that fills every inn.", "{s} is an event with its own songs."),
}

ASIDES = {
    "person": (
        Aside("An old almanac wrongly names {z} as the birthplace of {s}.", "town"),
        Aside("A portrait of {s} hangs in {z}.", "town"),
        Aside("{s} should not be confused with {z}, who was never a teacher.", "person"),
        Aside("{s} once turned down an offer from {z}.", "firm"),
        Aside("{s} calls {z} the most boring work ever published.", "work"),
    ),
    "town": (
        Aside("{z} ran for mayor of {s} and lost.", "person"),
        Aside("A road leads from {s} to {z}, but hardly any citizen takes it.", "town"),
        Aside("{z} closed its branch in {s} long ago.", "firm"),
        Aside("The council of {s} refused to host {z}.", "event"),
    ),
    "firm": (
        Aside("Rumor has it that {z} secretly owns {s}.", "person"),
        Aside("{s} considered a move to {z} and stayed.", "town"),
        Aside("{s} lost a lawsuit against {z}.", "firm"),
        Aside("{s} withdrew its money from {z}.", "event"),
    ),
    "work": (
        Aside("Scholars once believed that {s} was written by {z}.", "person"),
        Aside("A film of {s} moved the plot to {z}.", "town"),
        Aside("{z} had rejected {s} before.", "firm"),
        Aside("{s} is often shelved beside {z}.", "work"),
    ),
    "event": (
        Aside("Until a scandal, {s} was to be chaired by {z}.", "person"),
        Aside("{z} applied to host {s} and was turned down.", "town"),
        Aside("{z} stopped sponsoring {s}.", "firm"),
        Aside("{s} takes place in the same month as {z}.", "event"),
    ),
}
