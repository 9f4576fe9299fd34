"""The simulated cloud: pools of machines that take their time, fail, run out and are taken back, as a real cloud's.

The cloud is a backend of the provider kit, which implements the contract. Here is only what a cloud does, and how its
configuration file is read.
"""
