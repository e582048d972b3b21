"""A loopback OpenAlex: the parts of its API that the client uses, over real records, with faults on demand.

records.py     record files -> collections of works and of the sources they name
collection.py  rows to serve and inverted indexes to filter by
filters.py     ``filter=`` -> the set of works it matches
groups.py      ``group_by=`` -> counts
paging.py      the order of rows, and cursors into it
parameters.py  what may be asked together
answers.py     one GET -> status and body
gate.py        keys, prices, the daily budget, the rate
faults.py      seeded faults, the same whatever the order of threads
wire.py        HTTP itself, and the log
vocabulary.py  the names OpenAlex accepts and lists in its error messages

``tests.servers.openalex_server`` puts them together. Known differences from OpenAlex: an id may have one digit; works
of 2023 keep their old content in today's shape; ``group_by`` leaves out values that no work has; a sample with a cursor
is a 400 (OpenAlex answers without a next_cursor).
"""
