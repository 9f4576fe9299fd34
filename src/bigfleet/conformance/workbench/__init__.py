"""What checks work with: the target and its calls, machines on lease, faults, and what the run has witnessed.

Nothing here judges a provider.
"""
