"""Messages to people when something is wrong, and when it is over.

Belongs here: what counts as a problem (``problems``, ``broken_rules``, ``ticks``, ``replication_slots``), which of them have one cause
(``causes``), which are new or over (``messages``), the page that lists them (``page``), and sending a message (``send``).
Does not belong: the state of the containers (``operations.status``), the sensor and the YAML (``dagster``), and mail, chats and web hooks,
which are apprise's.
"""
