"""The compilers: each module turns the same tree into what one engine answers."""
