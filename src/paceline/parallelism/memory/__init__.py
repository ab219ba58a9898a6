"""What each rank keeps: weights, gradients, states and activations."""
