"""The prefix cache: blocks by their tokens, the order in which they go, and what routers hear. Integers only."""
