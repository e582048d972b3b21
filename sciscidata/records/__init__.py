"""One OpenAlex record, of any year and shape, becomes one row of WORKS and its rows of CITATIONS.

``json_record.py`` reads the JSON, ``work_columns.py`` makes the rows (read it first). ``last_year_of_data.py`` says
which years are real. The rest makes plain text.
"""
