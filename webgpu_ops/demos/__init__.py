"""Demos: each one a picture worth looking at."""
