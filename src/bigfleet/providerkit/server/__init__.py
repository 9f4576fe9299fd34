"""A provider as a process: its command line, its gRPC service, its start and its stop.

The form of a request and the identity of its caller are checked here. The ledger judges the call itself.
"""
