-- name: add_policy
-- Queue, policy. For the queue and all subscriptions, which may receive what is published to it.
UPDATE headgate_queue SET policies = policies | ?2 WHERE (id = ?1 OR kind <> 'queue') AND policies & ?2 = 0

-- name: set_policy
-- Queue, policy, the policy or 0. The others stay.
UPDATE headgate_queue SET policies = (policies & ~?2) | ?3 WHERE id = ?1

-- name: delete_expired
-- Queue, now, messages that the claim acks. What is leased does not expire until it is given back, or its lease has ended, was not
-- its last one, and is not to be acked.
DELETE FROM headgate_delivery WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery
    WHERE queue = ?1 AND expires_at IS NOT NULL AND expires_at <= ?2
        AND (state IN (0, 1) OR state = 2 AND visible_at <= ?2
            AND message NOT IN (SELECT value FROM json_each(?3)) AND (doubt = 1 OR NOT EXISTS (
            SELECT 1 FROM headgate_queue q WHERE q.id = ?1 AND q.max_attempts > 0 AND attempts >= q.max_attempts)))
    LIMIT 1000)
RETURNING 1

-- name: set_expires_at
-- Message, now, span.
UPDATE headgate_delivery SET expires_at = ?2 + ?3 WHERE message = ?1

-- name: set_rate
-- Queue, count, period. A new limit begins with a full bucket.
INSERT INTO headgate_rate (queue, count, period_us, full_at) VALUES (?1, ?2, ?3, 0)
ON CONFLICT (queue) DO UPDATE SET count = excluded.count, period_us = excluded.period_us, full_at = 0

-- name: delete_rate
DELETE FROM headgate_rate WHERE queue = ?1

-- name: rate
-- Queue, now.
SELECT count, period_us, full_at, ?2 FROM headgate_rate WHERE queue = ?1

-- name: lock_rate
-- Queue, now. Other claims wait: in SQLite, a write transaction is alone.
SELECT count, period_us, full_at, ?2 FROM headgate_rate WHERE queue = ?1

-- name: set_full_at
UPDATE headgate_rate SET full_at = ?2 WHERE queue = ?1

-- name: hold_unique_key
-- Queue, key: the message that has the key, 0 if none had.
INSERT INTO headgate_unique (queue, key, message) VALUES (?1, ?2, 0)
ON CONFLICT (queue, key) DO UPDATE SET message = message RETURNING message

-- name: set_unique_key
UPDATE headgate_unique SET message = ?3 WHERE queue = ?1 AND key = ?2

-- name: is_pending
SELECT 1 FROM headgate_delivery WHERE message = ?2 AND queue = ?1 AND state < 3

-- name: forget_unique_keys
-- Queue, its last message. Of 20 keys from a random place on, those whose messages are done: the oldest ones may be pending
-- for long. And keys that no message got.
DELETE FROM headgate_unique WHERE queue = ?1 AND key IN (
    SELECT key FROM headgate_unique WHERE queue = ?1 AND message = 0
    UNION ALL SELECT o.key FROM (
        SELECT key, message FROM headgate_unique WHERE queue = ?1 AND message >= (
            SELECT first + abs(random() % (?2 - first + 1)) FROM (
                SELECT min(message) AS first FROM headgate_unique WHERE queue = ?1 AND message > 0))
        ORDER BY message LIMIT 20) o
    WHERE NOT EXISTS (SELECT 1 FROM headgate_delivery d WHERE d.message = o.message AND d.queue = ?1 AND d.state < 3))

-- name: delete_unique_keys
DELETE FROM headgate_unique WHERE queue = ?1

-- name: add_result
-- Message, queue, how long to keep it.
INSERT INTO headgate_result (message, queue, keep_us) VALUES (?1, ?2, ?3)

-- name: set_result
-- Message, queue, value, now.
UPDATE headgate_result SET value = ?3, expires_at = ?4 + keep_us WHERE message = ?1 AND queue = ?2

-- name: result
-- Message, now: the value, whether there is one, and the state and reason of its delivery.
SELECT r.value, r.expires_at IS NOT NULL, d.state, d.reason
FROM headgate_result r LEFT JOIN headgate_delivery d ON d.message = r.message AND d.queue = r.queue
WHERE r.message = ?1 AND (r.expires_at IS NULL OR r.expires_at > ?2)

-- name: forget_results
-- Now, the last message. Results that have expired; and of 20 from a random place on, those without a value whose messages are
-- gone.
DELETE FROM headgate_result WHERE message IN (
    SELECT message FROM (SELECT message FROM headgate_result WHERE expires_at <= ?1 LIMIT 100)
    UNION ALL SELECT o.message FROM (
        SELECT message, queue, expires_at FROM headgate_result WHERE message >= (
            SELECT first + abs(random() % (?2 - first + 1)) FROM (SELECT min(message) AS first FROM headgate_result))
        ORDER BY message LIMIT 20) o
    WHERE o.expires_at IS NULL AND NOT EXISTS (SELECT 1 FROM headgate_delivery d WHERE d.message = o.message AND d.queue = o.queue))

-- name: delete_results
DELETE FROM headgate_result WHERE queue = ?1
