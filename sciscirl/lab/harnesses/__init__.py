"""The task for other harnesses: ``export.py`` writes a folder with the papers and the file of Inspect."""
