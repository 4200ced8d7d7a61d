-- name: add_policy
-- Queue, policy. For the queue and all subscriptions, which may receive what is published to it.
UPDATE queue SET policies = policies | $2 WHERE (id = $1 OR kind <> 'queue') AND policies & $2 = 0

-- name: set_policy
-- Queue, policy, the policy or 0. The others stay, also one that another transaction has added since this one began.
UPDATE queue SET policies = (policies & ~$2::integer) | $3::integer WHERE id = $1

-- name: delete_expired
-- Queue, now, messages that the claim acks. What is leased does not expire until it is given back, or its lease has ended, was not
-- its last one, and is not to be acked.
DELETE FROM delivery WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM delivery
    WHERE queue = $1 AND expires_at IS NOT NULL AND expires_at <= coalesce($2::bigint, now_us())
        AND (state IN (0, 1) OR state = 2 AND visible_at <= coalesce($2::bigint, now_us())
            AND message <> ALL ($3::bigint[]) AND (doubt = 1 OR NOT EXISTS (
            SELECT 1 FROM queue q WHERE q.id = $1 AND q.max_attempts > 0 AND delivery.attempts >= q.max_attempts)))
    LIMIT 1000 FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: set_expires_at
-- Message, now, span.
UPDATE delivery SET expires_at = coalesce($2::bigint, now_us()) + $3::bigint
WHERE message = $1 AND queue = ANY (ARRAY(SELECT id FROM queue))

-- name: set_rate
-- Queue, count, period. A new limit begins with a full bucket.
INSERT INTO rate (queue, count, period_us, full_at) VALUES ($1, $2, $3, 0)
ON CONFLICT (queue) DO UPDATE SET count = excluded.count, period_us = excluded.period_us, full_at = 0

-- name: delete_rate
DELETE FROM rate WHERE queue = $1

-- name: rate
-- Queue, now.
SELECT count, period_us, full_at, coalesce($2::bigint, now_us()) FROM rate WHERE queue = $1

-- name: lock_rate
-- Queue, now. Other claims wait.
SELECT count, period_us, full_at, coalesce($2::bigint, now_us()) FROM rate WHERE queue = $1 FOR UPDATE

-- name: set_full_at
UPDATE rate SET full_at = $2 WHERE queue = $1

-- name: hold_unique_key
-- Queue, key: the message that has the key, 0 if none had. Other publishers of the key wait.
INSERT INTO unique_key (queue, key, message) VALUES ($1, $2, 0)
ON CONFLICT (queue, key) DO UPDATE SET message = unique_key.message RETURNING message

-- name: set_unique_key
UPDATE unique_key SET message = $3 WHERE queue = $1 AND key = $2

-- name: is_pending
SELECT 1 FROM delivery WHERE queue = $1 AND message = $2 AND state < 3

-- name: forget_unique_keys
-- Queue, its last message. Of 20 keys from a random place on, those whose messages are done: the oldest ones may be pending
-- for long. And keys that no message got.
DELETE FROM unique_key WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM unique_key o WHERE o.queue = $1 AND o.key = ANY (ARRAY(
        (SELECT key FROM unique_key WHERE queue = $1 AND message = 0)
        UNION ALL (SELECT key FROM unique_key WHERE queue = $1 AND message >= (
                SELECT first + floor(random() * ($2::bigint - first + 1))::bigint FROM (
                    SELECT min(message) AS first FROM unique_key WHERE queue = $1 AND message > 0) f)
            ORDER BY queue, message LIMIT 20)))
    AND (SELECT d.message FROM delivery d WHERE d.queue = $1 AND d.message = o.message AND d.state < 3) IS NULL
    FOR UPDATE SKIP LOCKED))

-- name: delete_unique_keys
DELETE FROM unique_key WHERE queue = $1

-- name: add_result
-- Message, queue, how long to keep it.
INSERT INTO result (message, queue, keep_us) VALUES ($1, $2, $3)

-- name: set_result
-- Message, queue, value, now. Wakes those who wait for results, under the id of `engine.RESULTS`.
WITH kept AS (
    UPDATE result SET value = $3, expires_at = coalesce($4::bigint, now_us()) + keep_us
    WHERE message = $1 AND queue = $2 RETURNING message
)
SELECT wake_up(999999999999999999) FROM kept

-- name: result
-- Message, now: the value, whether there is one, and the state and reason of its delivery.
SELECT r.value, r.expires_at IS NOT NULL, d.state, d.reason
FROM result r LEFT JOIN delivery d ON d.queue = r.queue AND d.message = r.message
WHERE r.message = $1 AND (r.expires_at IS NULL OR r.expires_at > coalesce($2::bigint, now_us()))

-- name: forget_results
-- Now, the last message. Results that have expired; and of 20 from a random place on, those without a value whose messages are
-- gone.
DELETE FROM result WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM result r WHERE r.message = ANY (ARRAY(
        (SELECT message FROM result WHERE expires_at <= coalesce($1::bigint, now_us()) LIMIT 100)
        UNION ALL (SELECT message FROM result WHERE message >= (
                SELECT first + floor(random() * ($2::bigint - first + 1))::bigint FROM (
                    SELECT min(message) AS first FROM result) f)
            ORDER BY message LIMIT 20)))
    AND (r.expires_at <= coalesce($1::bigint, now_us())
        OR r.expires_at IS NULL AND (SELECT d.message FROM delivery d WHERE d.queue = r.queue AND d.message = r.message) IS NULL)
    FOR UPDATE SKIP LOCKED))

-- name: delete_results
DELETE FROM result WHERE queue = $1
