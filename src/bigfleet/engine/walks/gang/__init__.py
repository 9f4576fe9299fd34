"""The choice of a gang's domain: what each domain holds, and which of them comes first.

Compiled walks, as in the folder above.
"""
