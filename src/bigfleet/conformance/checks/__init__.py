"""The behaviours themselves, one file an area; the number of an area begins its ids (B1xx to B12xx).

A check sees a provider only through the workbench.
"""
