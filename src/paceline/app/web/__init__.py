"""The local page of ``paceline web``: what it is asked, the API functions, the pages of reports."""
