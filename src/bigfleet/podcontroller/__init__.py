"""Optional, per cluster: one CapacityRequest for each pod, for the pod's whole life.

Reads pods and writes requests, nothing else. Empty until built.
"""
