"""How a machine joins: answers to bootstrap requests, the template, its sandbox, tokens and the cluster's address.

The only objects written here are the tokens' Secrets.
"""
