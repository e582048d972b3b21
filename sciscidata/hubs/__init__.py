"""Releases on hubs: sent to the Hugging Face Hub, Zenodo or a folder, and fetched from the Hugging Face Hub.

Read first: ``publish.py``, then ``fetch.py``. Tokens come from the environment alone, and are never written or logged.
"""

from sciscidata.hubs.fetch import fetch as fetch
from sciscidata.hubs.publish import publish as publish
