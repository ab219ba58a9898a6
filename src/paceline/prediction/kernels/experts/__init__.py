"""How long layers of experts take, by the kernel that runs them."""
