"""The engine: owns the model, all working sets and channels. Started as `python -m worker`."""
