"""The filter language: one frozen tree, and the compilers that push it into every engine."""
