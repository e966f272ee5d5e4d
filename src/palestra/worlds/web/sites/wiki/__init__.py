"""The encyclopedia: a read-only site over the documents of an invented world, a new one for every seed."""
