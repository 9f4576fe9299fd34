"""Real Kubernetes control planes as plain processes, for development and tests, without containers.

Here are their binaries, certificates, processes, and start and end. Of BigFleet it uses the CRDs and none of the
programs.
"""
