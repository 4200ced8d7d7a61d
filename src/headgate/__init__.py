"""Headgate: say once what you want, and the filter is pushed as deep as it goes."""
