"""Work over whole streams that runs on Spark: on this machine by default, unchanged on a cluster."""
