"""TLS, identity and gRPC options: how one BigFleet program reaches another.

Knows certificates and sockets, nothing of machines or needs.
"""
