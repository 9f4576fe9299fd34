"""Load for a shard: clusters that ask and answer as cheaply as can be, and what is measured of them."""
