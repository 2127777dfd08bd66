"""One file a view: what it computes, draws, says, and the code behind it."""
