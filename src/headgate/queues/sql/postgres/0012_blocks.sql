-- Nothing: on SQLite, messages are deleted in blocks since this version. The versions of both are counted together.
SELECT;
