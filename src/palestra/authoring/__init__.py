"""Helpers for authors of environments, one module per subject. Import each from its module: this package re-exports nothing.

``action_line``     which line of a reply is the action
``function_calls``  worlds whose actions are calls of functions: describe them, read them, refuse them
``graders``         grade a reply by a number, a choice or a function
``indices``         the index of a task in an environment that has a finite number of them
``rows``            rows of a data set with a hash of their content, and the data folder
``wheels``          data that is published as a Python package: declare it, and ``palestra prefetch`` fetches it
``panels``          a task of a panel, as the rule of a world lists it
``changes``         what an agent has changed in the data of a world, as HTML for people
``picture``         boards as pictures for people
``commands``        the results of commands that a world adds to ``palestra``

Palestra's own environments use these modules, and so may any other package: ``docs/reference/for-authors.md`` lists them
together with the other modules that are open to authors.
"""
