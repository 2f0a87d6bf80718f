"""Worlds behind stdio servers of the Model Context Protocol."""
