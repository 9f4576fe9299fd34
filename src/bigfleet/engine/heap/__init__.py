"""The one array of whole numbers that a decision works in: where each column begins, and how a cell is reached.

Layout and access only; what stands in the columns is put there by `load` and changed by `walks`.
"""
