"""The door: a job on a machine goes in, and steps come out.

Only this room lowers, splits, times and sizes what runs. Verbs, searches and the scoreboard list
jobs and read steps.
"""
