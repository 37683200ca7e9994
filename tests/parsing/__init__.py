"""Mutated examples, parsed by stock's op and by ours.

    PYTHONPATH=python:tests python -m parsing --examples=1000000

compares what is accepted, values and errors of each example, and prints the counts as JSON.
"""
