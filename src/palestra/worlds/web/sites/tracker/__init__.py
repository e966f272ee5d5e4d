"""The issue tracker: Trac with developers, milestones and tickets that are new for every seed."""
