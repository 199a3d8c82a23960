"""Shell: the site's report: what is known, in sections, as text and as one HTML page."""
