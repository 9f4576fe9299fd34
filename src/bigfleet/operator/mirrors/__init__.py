"""Objects that show in the cluster what the shard said: UpcomingNode and AvailableCapacity.

Written only where something changed; never read back as truth about machines.
"""
