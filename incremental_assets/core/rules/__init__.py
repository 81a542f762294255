"""Quality rules. The class of a rule owns its meaning: its attributes in the YAML, its SQL, and its verdict.

Belongs here: ``rule`` (what all rules have in common, and what a scan says of them), ``values``, ``keys``, ``numbers`` and ``table`` (the
rules, by what they are about), ``sql`` and ``declared`` (what their SQL is made of, and how a person's SQL is checked), ``checks`` (all
rules together). Does not belong: reading rows. A rule gives texts of SQL and gets numbers; which passes over the rows compute them is the
matter of ``quality.scan``.
"""
