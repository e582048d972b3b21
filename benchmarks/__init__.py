"""Speed and memory beside other packages, on the same input in one run."""
