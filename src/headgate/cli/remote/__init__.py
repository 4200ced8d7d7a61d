"""Commands against a running broker, over its HTTP API: users, permissions, queues, connections and the rest."""
