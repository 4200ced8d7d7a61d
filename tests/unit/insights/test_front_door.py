"""headgate.insights works without Spark, and asking for one answer loads only what it needs."""

import subprocess
import sys


def test_facts_about_streams_and_queues_need_no_spark():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from headgate.insights import list_queues, list_streams, explain_filter\n"
        "explain_filter(\"region = 'EU'\")\n"
        "print('headgate.spark.sessions' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
