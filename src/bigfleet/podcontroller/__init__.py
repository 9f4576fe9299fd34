"""Optional, per cluster: one CapacityRequest for each pod, for the pod's whole life.

Reads pods and writes requests, Events about pods, and one word on whether the requests are all of the demand.
"""
