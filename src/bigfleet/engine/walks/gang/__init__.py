"""The choice of a gang's domain: what each domain holds, and which of them comes first.

Only compiled functions, as in `walks`.
"""
