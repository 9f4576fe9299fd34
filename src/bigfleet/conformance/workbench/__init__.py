"""What checks work with: the target and its calls, machines on lease, faults, hosts, and what the run has witnessed.

No behaviour is checked here.
"""
