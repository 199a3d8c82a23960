"""What the cluster is and what is free in it: partitions, nodes, GPUs, limits."""
