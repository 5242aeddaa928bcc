"""Reports as HTML pages that need nothing but a browser: `page` is their frame and tables, `charts` their drawings."""
