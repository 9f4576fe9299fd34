"""Prints every instance that lives, as a host reference: what `bigfleet conformance --hosts-cmd` wants.

With a word, that is the endpoint of a cloud that is not AWS.
"""

import sys

import boto3

live = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
client = boto3.client("ec2", endpoint_url=sys.argv[1] if len(sys.argv) > 1 else None)
for page in client.get_paginator("describe_instances").paginate(Filters=live):
    for reservation in page["Reservations"]:
        for instance in reservation["Instances"]:
            sys.stdout.write(f"/{instance['Placement']['AvailabilityZone']}/{instance['InstanceId']}\n")
