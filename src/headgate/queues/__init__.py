"""Work queues on SQL: publish, claim with a lease, acknowledge; on SQLite, PostgreSQL and in memory."""
