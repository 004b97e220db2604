"""Models of the machine: what bounds a kernel."""
