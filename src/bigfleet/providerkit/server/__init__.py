"""A provider as a process: its command line, its gRPC service, how it starts and stops.

Form and identity are checked here; what a call means is the ledger's.
"""
