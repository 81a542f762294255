"""Messages to people when something is wrong, and when it is over.

Belongs here: what counts as a problem (``problems``, ``broken_rules``, ``ticks``, ``replication_slots``), which of them have one cause
(``causes``), which are new or over (``messages``), the page that lists them (``page``), and the sensor (``sensor``). Does not belong: the
state of the containers (``operations.status``), the YAML (``components.alerts``), and sending to mail, chats and web hooks, which is
apprise's.
"""
