"""How a machine joins: the template, its sandbox, tokens, and how a new node reaches the API server.

Answers bootstrap requests and writes nothing but the tokens' Secrets.
"""
