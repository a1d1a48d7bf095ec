"""The command line, the packaged sweeps, and the recipes that join the rooms."""
