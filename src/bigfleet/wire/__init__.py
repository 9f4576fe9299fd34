"""The wire contract in Python: stubs generated from `api/proto`, and conversion to and from the model.

Everything malformed is refused here, with an error that says what and where. No I/O, no decisions.
"""
