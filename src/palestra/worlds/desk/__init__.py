"""The service desk: an agent with tools over a database serves a customer under written rules.

A task is drawn from its seed: a database, the numbers in the rules, and a customer with one or more requests. The agent
talks to the customer, reads and changes the database through tools, and closes the case. The grader compares the final database
with the one that the rules ask for, and looks for broken rules in the agent's calls and messages. The tools do not enforce the
rules: a forbidden call works, as it would for a careless employee, and the grader finds it.

``case.py``      what a domain consists of: tools, requests, rules
``shop.py``      orders of a shop; ``shop_cases.py`` draws its databases and requests
``library.py``   loans of a library; ``library_cases.py`` draws its databases and requests
``customer.py``  the scripted customer
``record.py``    what happened in an episode, and the verdict on it
``solving.py``   what a perfect agent does next
``desk.py``      the environment
"""
