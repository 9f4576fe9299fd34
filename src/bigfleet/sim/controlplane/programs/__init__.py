"""The programs of a control plane: which versions, where they are found, and how they are built.

Nothing here starts them.
"""
