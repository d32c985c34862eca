"""A server without its model: requests, continuous batching step by step, and what a step costs."""
