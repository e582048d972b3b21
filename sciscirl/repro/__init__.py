"""How far answers repeat: the same prompts under other number formats, batches, threads, kernels, devices, servers."""
