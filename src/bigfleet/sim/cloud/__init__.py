"""The simulated cloud: pools of machines that take their time, fail, run out and are taken back, as a real cloud's.

A backend on the provider kit, so all of the contract is the kit's. Here is only what a cloud does, and its file.
"""
