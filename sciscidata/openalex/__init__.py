"""A client of the OpenAlex API that pays for no answer twice; knows nothing of works, scores or draws."""
