"""Grades a class's submissions, whose code nobody trusts: sandboxed, resumable, with and without a GPU."""
