"""Gradient flow of one leaky ReLU neuron: pieces of smooth flow, joined where samples switch."""
