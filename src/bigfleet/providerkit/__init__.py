"""What a provider author builds on: one small backend in, the whole contract out.

Generic over backends; the simulated cloud is one of them. Empty until built.
"""
