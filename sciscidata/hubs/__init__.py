"""Releases on hubs: sent to the Hugging Face Hub or a folder, and fetched from the Hub.

Read first: ``publish.py``, then ``fetch.py``. The token comes from the environment, and is never written or logged.
"""

from sciscidata.hubs.fetch import fetch as fetch
from sciscidata.hubs.publish import publish as publish
