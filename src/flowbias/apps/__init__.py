"""What people run: the command, the explorer in a browser, and the files that both read."""
