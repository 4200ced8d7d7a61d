"""One filter, one answer on every engine: run tables of cases through all of them and compare."""
