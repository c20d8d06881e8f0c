"""The engine: owns the model, every working set and every channel. Started as `python -m worker`."""
