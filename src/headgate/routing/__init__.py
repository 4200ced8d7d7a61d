"""Which queues a message goes to: exchanges, bindings, and the topology they make up. Pure."""
