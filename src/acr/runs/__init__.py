"""Run folders: what a config resolves to, how a run is written, how it is read back."""
