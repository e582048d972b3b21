"""The task for other harnesses: ``export.py`` writes a folder with the papers and the files of one tool."""
