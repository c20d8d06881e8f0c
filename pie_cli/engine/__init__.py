"""The engine's trusted processes without torch: hub, launcher and the zygote that it starts."""
