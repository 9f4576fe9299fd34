"""The pod controller, optional in each cluster: it keeps one CapacityRequest for each pod, for the pod's whole life.

It reads pods. It writes requests, Events about pods, and a ConfigMap that says whether the requests are all demand.
"""
