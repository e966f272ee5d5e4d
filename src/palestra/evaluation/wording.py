"""How reports write numbers: the same words in a terminal, in Markdown, in HTML and in Python."""

from palestra.foundation.statistics import Estimate, PartialMean

__all__ = ["dollars", "mean_words", "partial_sentence", "signed"]


def mean_words(estimate: Estimate | None, partial: PartialMean | None = None, form: str = ".2f") -> str:
    """A mean with its interval, or the mean of a part with what the mean of all can be."""
    if estimate is not None:
        return f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
    if partial is None:
        return "–"
    return f"{partial.mean:{form}} of {partial.episodes} of {partial.asked} ({_range(partial, form)})"


def _range(partial: PartialMean, form: str) -> str:
    if partial.low is None or partial.high is None:
        return "all: unknown"
    return f"all: {partial.low:{form}} to {partial.high:{form}}"


def partial_sentence(partial: PartialMean) -> str:
    """The mean of a part in a sentence, with what the mean of all can be."""
    told = f"Mean {partial.mean:.3f} of {partial.episodes} of {partial.asked} episodes asked for"
    if partial.low is None or partial.high is None:
        return (
            f"{told}. What the other {partial.missing} would have scored is unknown, and their environment declares no "
            f"score_range, so there is no range for the mean of all."
        )
    return (
        f"{told}. Whatever the other {partial.missing} score, the mean of all {partial.asked} lies between "
        f"{partial.low:.3f} and {partial.high:.3f}."
    )


def dollars(amount: float) -> str:
    """An amount of money; a small one with two digits that are not zero."""
    if amount == 0.0 or abs(amount) >= 0.995:
        return f"${amount:,.2f}"
    return f"${float(f'{amount:.2g}'):.12f}".rstrip("0").rstrip(".")


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.2f}"
