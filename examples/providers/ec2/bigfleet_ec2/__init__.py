"""A BigFleet provider for Amazon EC2: pools of on-demand and spot instances, found again by their tags.

Built on `bigfleet.providerkit` and boto3; nothing else of BigFleet is used.
"""
