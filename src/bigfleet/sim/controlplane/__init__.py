"""Real Kubernetes control planes as plain processes: their binaries, certificates, processes and life.

For development and tests, without containers. It knows BigFleet's manifests and none of its programs.
"""
