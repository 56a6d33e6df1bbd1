"""The live dashboard: runs while they are running, in a browser on this machine."""
