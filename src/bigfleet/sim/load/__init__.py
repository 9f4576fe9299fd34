"""Load for a shard: clusters that ask and answer at little cost of their own, and what is measured of them."""
