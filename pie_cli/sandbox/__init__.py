"""The sandbox of an inferlet process: what is allowed, how it is enforced, and the probe."""
