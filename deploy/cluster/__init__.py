"""The topology of several machines, as processes on the loopback interface of this one.

Belongs here: which services there are (``topology``), their processes (``processes``), all of them together (``local``), and runs that are
launched through Dagster's webserver (``runs``). ``python -m deploy.cluster`` starts it. Does not belong: the product, which knows nothing
of this folder.
"""
