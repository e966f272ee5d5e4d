"""The tasks of MiniWoB++ by name, and what they need."""

from typing import NamedTuple

__all__ = ["TASKS", "MiniWobTask"]


class MiniWobTask(NamedTuple):
    """What is known of a task."""

    by_point: bool
    """It needs points of the window: shapes, drawings, text to mark. It has the actions ``click_at`` and ``drag_at``."""


_BY_ELEMENT = """
    ascending-numbers book-flight book-flight-nodelay button-delay buy-ticket choose-date choose-date-easy
    choose-date-medium choose-date-nodelay choose-list click-button click-button-sequence click-checkboxes
    click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer click-collapsible click-collapsible-2
    click-collapsible-2-nodelay click-collapsible-nodelay click-color click-dialog click-dialog-2 click-link
    click-menu click-menu-2 click-option click-scroll-list click-shades click-shape click-tab click-tab-2
    click-tab-2-easy click-tab-2-hard click-tab-2-medium click-test click-test-2 click-test-transfer click-widget
    copy-paste copy-paste-2 count-shape email-inbox email-inbox-delete email-inbox-forward email-inbox-forward-nl
    email-inbox-forward-nl-turk email-inbox-important email-inbox-nl-turk email-inbox-noscroll email-inbox-reply
    email-inbox-star-reply enter-date enter-password enter-text enter-text-2 enter-text-dynamic enter-time
    find-greatest find-word focus-text focus-text-2 form-sequence form-sequence-2 form-sequence-3 generate-number
    guess-number hover-shape identify-shape login-user login-user-popup multi-layouts multi-orderings navigate-tree
    number-checkboxes odd-or-even order-food phone-book read-table read-table-2 scroll-text scroll-text-2
    search-engine sign-agreement simon-says simple-algebra simple-arithmetic social-media social-media-all
    social-media-some stock-market terminal text-transform tic-tac-toe unicode-test use-autocomplete
    use-autocomplete-nodelay use-slider use-slider-2 use-spinner visual-addition
"""
_BY_POINT = """
    bisect-angle chase-circle circle-center click-pie click-pie-nodelay count-sides daily-calendar drag-box
    drag-circle drag-cube drag-items drag-items-grid drag-shapes drag-shapes-2 drag-single-shape drag-sort-numbers
    draw-circle draw-line find-midpoint grid-coordinate highlight-text highlight-text-2 hot-cold moving-items
    resize-textarea right-angle text-editor use-colorwheel use-colorwheel-2
"""

TASKS = {
    **{name: MiniWobTask(False) for name in _BY_ELEMENT.split()},
    **{name: MiniWobTask(True) for name in _BY_POINT.split()},
}
