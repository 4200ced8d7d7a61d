-- States of a delivery, as in engine.State: 0 READY, 1 DELAYED, 2 LEASED, 3 DEAD.

-- name: promote
-- Queue, now. Due deliveries become ready; after the last attempt, dead. A delivery that was leased together with others
-- gets its attempt back, and is claimed alone from now on.
UPDATE headgate_delivery SET
    attempts = attempts - (state = 2 AND doubt = 1),
    doubt = CASE WHEN state = 2 AND doubt = 1 THEN 2 ELSE doubt END,
    reason = CASE WHEN state = 2 AND doubt <> 1 AND attempts >= (SELECT max_attempts FROM headgate_queue WHERE id = ?1)
        AND (SELECT max_attempts FROM headgate_queue WHERE id = ?1) > 0
        THEN 'the lease ended after attempt ' || attempts ELSE reason END,
    visible_at = CASE WHEN state = 2 THEN ?2 ELSE visible_at END,
    state = CASE WHEN state = 2 AND doubt <> 1 AND attempts >= (SELECT max_attempts FROM headgate_queue WHERE id = ?1)
        AND (SELECT max_attempts FROM headgate_queue WHERE id = ?1) > 0 THEN 3 ELSE 0 END
WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery
    WHERE queue = ?1 AND state IN (1, 2) AND visible_at <= ?2 ORDER BY visible_at LIMIT 1000)
RETURNING 1

-- name: next_due
-- Queue, now: how long to wait for the next delivery that falls due, or until others may continue a backlog. A paused queue
-- has no due time: resuming it wakes its consumers.
SELECT max(min(at) - ?2, 0) FROM (
    SELECT * FROM (
        SELECT visible_at AS at FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) ORDER BY visible_at LIMIT 1)
    UNION ALL SELECT busy_until FROM headgate_backlog WHERE queue = ?1)
WHERE NOT (SELECT paused FROM headgate_queue WHERE id = ?1)

-- name: has_ready
-- Whether there may be something to claim; also true if the queue was deleted. Unrouted messages are for subscriptions.
SELECT EXISTS (SELECT 1 FROM headgate_delivery WHERE queue = ?1 AND state = 0 AND aside = 0)
    OR EXISTS (SELECT 1 FROM headgate_backlog WHERE queue = ?1)
    OR coalesce((SELECT kind <> 'queue' AND EXISTS (SELECT 1 FROM headgate_unrouted) FROM headgate_queue WHERE id = ?1), 1)

-- name: claim_state
-- Queue, now: whether it is paused, whether due deliveries must be promoted first, and the version of the catalog.
SELECT q.paused, NOT q.paused AND EXISTS (SELECT 1 FROM headgate_delivery d
    WHERE d.queue = ?1 AND d.state IN (1, 2) AND d.visible_at <= ?2),
    (SELECT version FROM headgate_catalog)
FROM headgate_queue q WHERE q.id = ?1

-- name: candidates
-- Queue, limit, then the parameters of the gaps. In the order of the queue. A member of a group is no candidate while
-- another member is leased, or delayed after a nack.
SELECT d.message, d.rank, d.grp, d.doubt{columns} FROM headgate_delivery d {index}{join}
WHERE d.queue = ?1 AND d.state = 0 AND {where}
    AND (d.grp IS NULL OR NOT EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = d.grp AND b.state IN (1, 2) AND (b.state = 2 OR b.attempts > 0)))
ORDER BY d.rank, d.message LIMIT ?2

-- name: first_candidates
-- As candidates, among the first {most} ready deliveries; none if some are aside, which may come first.
SELECT d.message, d.rank, d.grp, d.doubt FROM (
    SELECT message, rank, grp, doubt, keys FROM headgate_delivery {index} WHERE queue = ?1 AND state = 0 AND aside = 0
    ORDER BY rank, message
    LIMIT CASE WHEN EXISTS (SELECT 1 FROM headgate_delivery WHERE queue = ?1 AND aside = 1) THEN 0 ELSE {most} END) d{join}
WHERE {where}
    AND (d.grp IS NULL OR NOT EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = d.grp AND b.state IN (1, 2) AND (b.state = 2 OR b.attempts > 0)))
ORDER BY d.rank, d.message LIMIT ?2

-- name: range_candidates
-- Queue, limit, then the parameters of the gap. As candidates, but unordered, so that the index on the header can be used.
SELECT d.message, d.rank, d.grp, d.doubt FROM headgate_delivery d{join}
WHERE d.queue = ?1 AND d.state = 0 AND {where}
    AND (d.grp IS NULL OR NOT EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = d.grp AND b.state IN (1, 2) AND (b.state = 2 OR b.attempts > 0)))
LIMIT ?2

-- name: count_key
-- Queue, limit of the count, value.
SELECT count(*) FROM (SELECT 1 FROM headgate_delivery d
    WHERE d.queue = ?1 AND d.state = 0 AND {expression} = ?3 LIMIT ?2)

-- name: candidate_join
-- CROSS: SQLite reads the deliveries first, in order, and then their messages.
CROSS JOIN headgate_message m ON m.id = d.message

-- name: scan_page
-- Queue, limit, after which message, then the parameters of the gaps. The next deliveries by id, in all states: their
-- number and the last id; then those that match. The last of all queues where no more of this one follow: its next one comes after
-- that, and the others are not read again.
WITH page AS MATERIALIZED (
    SELECT message, rank, keys FROM headgate_delivery NOT INDEXED WHERE queue = ?1 AND message > ?3
    ORDER BY message LIMIT ?2
)
SELECT count(*), CASE WHEN count(*) < ?2 THEN (SELECT max(message) FROM headgate_delivery) ELSE max(message) END FROM page
UNION ALL SELECT * FROM (SELECT 0, d.message FROM page d{join} WHERE {where} LIMIT {most})

-- name: ready_page
-- Queue, limit, after which rank and message. The next ready deliveries in the order of the queue, by the index alone: their messages
-- as one JSON array, which is read in half the time of as many rows, and the last rank.
SELECT json_group_array(message), max(rank) FROM (
    SELECT d.message, d.rank FROM headgate_delivery d INDEXED BY headgate_delivery_ready
    WHERE d.queue = ?1 AND d.state = 0 AND {part} AND (d.rank, d.message) > (?3, ?4)
    ORDER BY d.rank, d.message LIMIT ?2)

-- name: matching_among
-- Queue, messages, then the parameters of the gap: which of them match.
SELECT d.message FROM json_each(?2) k CROSS JOIN headgate_delivery d ON d.message = k.value AND d.queue = ?1{join}
WHERE {where}

-- name: claimable_among
-- Queue, limit, messages.
SELECT d.message, d.rank, d.grp, d.doubt
FROM json_each(?3) k CROSS JOIN headgate_delivery d ON d.message = k.value AND d.queue = ?1
WHERE d.state = 0
    AND (d.grp IS NULL OR NOT EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = d.grp AND b.state IN (1, 2) AND (b.state = 2 OR b.attempts > 0)))
ORDER BY d.rank, d.message LIMIT ?2

-- name: after_position
(d.rank, d.message) > ({rank}, {message})

-- name: not_skipped
d.message NOT IN (SELECT value FROM json_each({ids}))

-- name: lease
-- Queue, messages, now, lease, doubt. Deliveries that are no longer ready, or whose group is busy now, are left out.
UPDATE headgate_delivery SET state = 2, visible_at = ?3 + ?4, token = token + 1, attempts = attempts + 1,
    aside = 0, doubt = max(doubt & 2, ?5)
WHERE queue = ?1 AND message IN (SELECT value FROM json_each(?2)) AND state = 0
    AND (grp IS NULL OR NOT EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = headgate_delivery.grp AND b.state IN (1, 2)
            AND (b.state = 2 OR b.attempts > 0)))
RETURNING message

-- name: leased
-- Queue, messages.
SELECT d.message, d.token, d.attempts, d.grp, {columns}
FROM headgate_delivery d CROSS JOIN headgate_message m ON m.id = d.message
WHERE d.queue = ?1 AND d.message IN (SELECT value FROM json_each(?2))
ORDER BY d.rank, d.message

-- name: lease_one
-- Queue, message, now, lease; then queue, message. As lease and leased for a single message, without the cost of a list.
UPDATE headgate_delivery SET state = 2, visible_at = ?3 + ?4, token = token + 1, attempts = attempts + 1,
    aside = 0, doubt = doubt & 2
WHERE queue = ?1 AND message = ?2 AND state = 0
    AND (grp IS NULL OR NOT EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = headgate_delivery.grp AND b.state IN (1, 2)
            AND (b.state = 2 OR b.attempts > 0)));
SELECT d.message, d.token, d.attempts, d.grp, {columns}
FROM headgate_delivery d CROSS JOIN headgate_message m ON m.id = d.message
WHERE d.queue = ?1 AND d.message = ?2 AND changes() > 0

-- name: ack_next
-- Queue, message, token. As ack, where the number of changes tells whether it was done.
DELETE FROM headgate_delivery WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2

-- name: ack_several
-- Queue, messages, their token.
DELETE FROM headgate_delivery
WHERE queue = ?1 AND message IN (SELECT value FROM json_each(?2)) AND token = ?3 AND state = 2

-- name: next_messages
-- Queue, limit, the parameters of the gap, then now. The messages in their order; of each the doubt, and at last the catalog
-- version and whether due deliveries must be promoted first. CROSS: the candidates are read first, in order.
SELECT d.message, d.token + 1, d.attempts + 1, d.grp, {columns}, d.doubt, (SELECT version FROM headgate_catalog),
    EXISTS (SELECT 1 FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) AND visible_at <= {now})
FROM ({candidates}) c
CROSS JOIN headgate_delivery d ON d.message = c.message AND d.queue = ?1
CROSS JOIN headgate_message m ON m.id = d.message

-- name: no_message
-- Queue, now. What next_messages returns last, where there is no message.
SELECT version, EXISTS (SELECT 1 FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) AND visible_at <= ?2)
FROM headgate_catalog

-- name: lease_next
-- Queue, message, now, lease. As lease, for a message that next_messages has found in the same transaction.
UPDATE headgate_delivery SET state = 2, visible_at = ?3 + ?4, token = token + 1, attempts = attempts + 1,
    aside = 0, doubt = doubt & 2
WHERE message = ?2 AND queue = ?1

-- name: lease_several
-- Queue, messages of different groups, now, lease, doubt.
UPDATE headgate_delivery SET state = 2, visible_at = ?3 + ?4, token = token + 1, attempts = attempts + 1,
    aside = 0, doubt = max(doubt & 2, ?5)
WHERE queue = ?1 AND message IN (SELECT value FROM json_each(?2))

-- name: not_aside
d.aside = 0

-- name: aside
d.aside = 1

-- name: busy_in_the_way
-- Queue, how many to look at. How many of the first ready deliveries are members of busy groups. Without busy groups, the
-- limit is 0, and no row is read; a condition would be checked for each row.
SELECT count(*) FROM (
    SELECT grp FROM headgate_delivery INDEXED BY headgate_delivery_ready WHERE queue = ?1 AND state = 0 AND aside = 0
    ORDER BY rank, message LIMIT CASE WHEN EXISTS (
        SELECT 1 FROM headgate_delivery WHERE queue = ?1 AND grp IS NOT NULL AND state IN (1, 2)) THEN ?2 ELSE 0 END) d
WHERE d.grp IS NOT NULL AND EXISTS (
    SELECT 1 FROM headgate_delivery b
    WHERE b.queue = ?1 AND b.grp = d.grp AND b.state IN (1, 2) AND (b.state = 2 OR b.attempts > 0))

-- name: set_aside
-- Queue, how many to look at: those of the first ready deliveries that are members of busy groups.
UPDATE headgate_delivery SET aside = 1 WHERE queue = ?1 AND message IN (
    SELECT d.message FROM (
        SELECT message, grp FROM headgate_delivery INDEXED BY headgate_delivery_ready
        WHERE queue = ?1 AND state = 0 AND aside = 0 ORDER BY rank, message LIMIT ?2) d
    WHERE d.grp IS NOT NULL AND EXISTS (
        SELECT 1 FROM headgate_delivery b
        WHERE b.queue = ?1 AND b.grp = d.grp AND b.state IN (1, 2) AND (b.state = 2 OR b.attempts > 0)))
RETURNING 1

-- name: archive
-- Queue, message, token, now.
INSERT OR REPLACE INTO headgate_archive (queue, id, acked_at, attempts, grp, topic, headers, properties, priority,
    timestamp, message_id, filter_value, key, payload, turn)
SELECT d.queue, d.message, ?4, d.attempts, d.grp, m.topic, m.headers, m.properties, m.priority,
    m.timestamp, m.message_id, m.filter_value, m.key, m.payload, (SELECT turn FROM headgate_next_turn WHERE queue = ?1)
FROM headgate_delivery d JOIN headgate_message m ON m.id = d.message
WHERE d.message = ?2 AND d.queue = ?1 AND d.token = ?3 AND d.state = 2

-- name: ack
-- Queue, message, token.
DELETE FROM headgate_delivery WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2 RETURNING message, token

-- name: ack_one
-- Queue, message, token. As ack, where the queue keeps no archive: in a single statement, which is its own transaction.
DELETE FROM headgate_delivery WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2
    AND NOT (SELECT archive FROM headgate_queue WHERE id = ?1)
RETURNING message

-- name: nack
-- Queue, message, token, now, delay, reason.
UPDATE headgate_delivery SET
    state = CASE
        WHEN attempts >= (SELECT max_attempts FROM headgate_queue WHERE id = ?1)
            AND (SELECT max_attempts FROM headgate_queue WHERE id = ?1) > 0 THEN 3
        WHEN ?5 > 0 THEN 1 ELSE 0 END,
    visible_at = CASE
        WHEN attempts >= (SELECT max_attempts FROM headgate_queue WHERE id = ?1)
            AND (SELECT max_attempts FROM headgate_queue WHERE id = ?1) > 0 THEN ?4
        ELSE ?4 + ?5 END,
    reason = ?6
WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2 RETURNING message, token

-- name: bury
-- Queue, message, token, now, reason.
UPDATE headgate_delivery SET state = 3, visible_at = ?4, reason = ?5
WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2 RETURNING message, token

-- name: extend
-- Queue, message, token, now, lease. A lease is never made shorter.
UPDATE headgate_delivery SET visible_at = max(visible_at, ?4 + ?5)
WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2 RETURNING message, token

-- name: release
-- Queue, message, token, now.
UPDATE headgate_delivery SET state = 0, visible_at = ?4, attempts = attempts - 1
WHERE message = ?2 AND queue = ?1 AND token = ?3 AND state = 2 RETURNING message, token

-- name: existing_ids
-- Queue, messages: which of them exist, in any state.
SELECT message FROM headgate_delivery WHERE queue = ?1 AND message IN (SELECT value FROM json_each(?2))
