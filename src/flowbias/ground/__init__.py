"""What every other room stands on: it imports none of them."""
