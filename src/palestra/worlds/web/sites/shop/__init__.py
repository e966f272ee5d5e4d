"""The shop: django-oscar with a catalog, a customer and a history that are new for every seed."""
