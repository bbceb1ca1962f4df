"""Table 2 of the paper: ResNets on CIFAR-100."""
