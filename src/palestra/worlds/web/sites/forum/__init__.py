"""The forum: django-spirit with members, topics and comments that are new for every seed."""
