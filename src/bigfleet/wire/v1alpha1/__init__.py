"""Stubs of the wire contract, written by `make generate` from `api/proto`; never edited by hand."""
