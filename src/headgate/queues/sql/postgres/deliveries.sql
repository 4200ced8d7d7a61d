-- States of a delivery, as in engine.State: 0 READY, 1 DELAYED, 2 LEASED, 3 DEAD.

-- name: promote
-- Queue, now. Due deliveries become ready; after the last attempt, dead. A delivery that was leased together with others
-- gets its attempt back, and is claimed alone from now on. The statement wakes consumers: claims that met these rows while
-- they were locked have found nothing, and the caller's own filter may not match them.
WITH due AS MATERIALIZED (
    SELECT message FROM delivery
    WHERE queue = $1 AND state IN (1, 2) AND visible_at >= 0 AND visible_at <= coalesce($2::bigint, now_us())
    ORDER BY visible_at LIMIT 1000 FOR UPDATE SKIP LOCKED
), promoted AS (
    UPDATE delivery d SET
        attempts = d.attempts - CASE WHEN d.state = 2 AND d.doubt = 1 THEN 1 ELSE 0 END,
        doubt = CASE WHEN d.state = 2 AND d.doubt = 1 THEN 2 ELSE d.doubt END,
        reason = CASE WHEN d.state = 2 AND d.doubt <> 1 AND d.attempts >= q.max_attempts AND q.max_attempts > 0
            THEN 'the lease ended after attempt ' || d.attempts ELSE d.reason END,
        visible_at = CASE WHEN d.state = 2 THEN coalesce($2::bigint, now_us()) ELSE d.visible_at END,
        state = CASE WHEN d.state = 2 AND d.doubt <> 1 AND d.attempts >= q.max_attempts AND q.max_attempts > 0
            THEN 3 ELSE 0 END
    FROM queue q WHERE q.id = $1 AND d.queue = $1 AND d.message = ANY (ARRAY(SELECT message FROM due))
    RETURNING d.message
), woken AS MATERIALIZED (SELECT wake_up($1) FROM promoted LIMIT 1)
SELECT 1 FROM promoted WHERE (SELECT count(*) FROM woken) > 0

-- name: next_due
-- Queue, now: how long to wait for the next delivery that falls due, or until others may continue a backlog. A paused queue
-- has no due time: resuming it wakes its consumers.
SELECT greatest(min(at) - coalesce($2::bigint, now_us()), 0) FROM (
    (SELECT visible_at AS at FROM delivery WHERE queue = $1 AND state IN (1, 2) AND visible_at >= 0
     ORDER BY visible_at LIMIT 1)
    UNION ALL SELECT busy_until FROM backlog WHERE queue = $1) d
WHERE NOT (SELECT paused FROM queue WHERE id = $1)
HAVING count(*) > 0

-- name: has_ready
-- Whether there may be something to claim; also true if the queue was deleted. Unrouted messages are for subscriptions.
SELECT (SELECT message FROM delivery WHERE queue = $1 AND state = 0 AND rank <= 0 AND aside = 0 LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT 1 FROM backlog WHERE queue = $1)
    OR coalesce((SELECT kind <> 'queue' AND EXISTS (SELECT 1 FROM unrouted) FROM queue WHERE id = $1), true)

-- name: claim_state
-- Queue, now: whether it is paused, whether due deliveries must be promoted first, and the version of the catalog.
SELECT q.paused, NOT q.paused AND EXISTS (SELECT 1 FROM delivery d
    WHERE d.queue = $1 AND d.state IN (1, 2) AND d.visible_at >= 0 AND d.visible_at <= coalesce($2::bigint, now_us())),
    (SELECT version FROM catalog)
FROM queue q WHERE q.id = $1

-- name: claim
-- Acks and claims. Queue, limit, lease, now, acked messages in ascending order, their tokens or the only one, whether one
-- consumer handles the messages together, whether to claim nothing while deliveries are due; then the parameters of the
-- candidates.
--
-- Returns one row: the version of the catalog, whether deliveries are due (then nothing is claimed: promote first), the
-- number of candidates (one more if the acks have freed a group, whose next message is a candidate now), the acked messages
-- unless all were acked, NULL for the archive, the token of the new leases; then the leases by column, then their messages by
-- column, in another order. A row for each message would be stored temporarily before it is sent, and then be sent in small
-- pieces. The size of a value is limited, so a message that is too large for its share of the reply is left out, and fetched
-- separately. Headers are compressed, to a 256th at best.
--
-- width_bucket finds the position of a message by binary search; array_position would read from the beginning.
--
-- Rows are found by `= ANY (ARRAY(…))`, never by a join, whose sides the planner could exchange; locked rows by their ctid,
-- which cannot change. A row that was written since the statement began is skipped, as if it were still locked.
--
-- A claim together ends before the first delivery in doubt, or takes that one alone: see 0006_doubt.
--
-- Without acks it does not wait for the disk: a lease that is lost in a crash is granted again, and tokens are random, so
-- that the consumer from before cannot settle the new lease. In a transaction that has written something before, it does.
WITH queue_state AS MATERIALIZED (
    SELECT coalesce($4::bigint, now_us()) AS now, NOT q.paused AS open, q.archive,
        (random() * 9007199254740991)::bigint AS token,
        $8::boolean AND NOT q.paused AND EXISTS (SELECT 1 FROM delivery d WHERE d.queue = $1 AND d.state IN (1, 2)
            AND d.visible_at >= 0 AND d.visible_at <= coalesce($4::bigint, now_us())) AS due,
        CASE WHEN cardinality($5::bigint[]) = 0 AND pg_current_xact_id_if_assigned() IS NULL
            THEN set_config('synchronous_commit', 'off', true) END AS relaxed,
        (SELECT version FROM catalog) AS version
    FROM (SELECT) one LEFT JOIN queue q ON q.id = $1
), acked AS (
    DELETE FROM delivery d
    WHERE d.queue = $1 AND d.message = ANY ($5::bigint[]) AND d.state = 2
        AND d.token = ($6::bigint[])[least(width_bucket(d.message, $5::bigint[]), cardinality($6::bigint[]))]
    RETURNING d.message, d.attempts, d.grp
), freed AS MATERIALIZED (
    SELECT wake_up($1) FROM acked WHERE grp IS NOT NULL LIMIT 1
), {candidates}, to_lease AS MATERIALIZED (
    SELECT row_id FROM (
        SELECT *, row_number() OVER w = 1 AS is_first, bool_or(doubt = 2) OVER w AS is_doubted
        FROM locked WINDOW w AS (ORDER BY rank, message)) l
    WHERE NOT $7::boolean OR is_first OR NOT is_doubted
), leased AS (
    UPDATE delivery d
    SET state = 2, visible_at = (SELECT now FROM queue_state) + $3::bigint, token = (SELECT token FROM queue_state),
        attempts = d.attempts + 1, aside = 0,
        doubt = greatest(d.doubt & 2, CASE WHEN $7::boolean AND (SELECT count(*) FROM to_lease) > 1 THEN 1 ELSE 0 END)
    WHERE d.ctid = ANY (ARRAY(SELECT row_id FROM to_lease))
    RETURNING d.message, d.attempts, d.grp
)
SELECT s.version, s.due, (SELECT count(*) FROM found) + (SELECT count(*) FROM freed) AS found,
    CASE WHEN (SELECT count(*) FROM acked) < cardinality($5::bigint[])
        THEN (SELECT coalesce(array_agg(message), '{}') FROM acked) END AS acked,
    CASE WHEN s.archive THEN (
        SELECT keep_acked($1, s.now, array_agg(message), array_agg(attempts), array_agg(grp)) FROM acked) END AS archived,
    s.token, l.*, m.*
FROM queue_state s
CROSS JOIN (SELECT array_agg(message), array_agg(attempts), array_agg(grp) FROM leased) l
CROSS JOIN (
    SELECT array_agg(m.id), {columns} FROM message m
    WHERE m.id = ANY (ARRAY(SELECT message FROM leased))
        AND octet_length(m.payload) + octet_length(m.topic) + coalesce(octet_length(m.message_id), 0)
            + coalesce(octet_length(m.filter_value), 0) + coalesce(octet_length(m.key), 0)
            + CASE WHEN pg_column_size(m.headers) + pg_column_size(m.properties) <= {most_bytes} / $2 / 256 THEN 0
                ELSE octet_length(m.headers::text) + octet_length(m.properties::text) END <= {most_bytes} / $2) m

-- name: claimed_messages
-- Messages that were too large for the reply of a claim.
SELECT m.id, {columns} FROM message m WHERE m.id = ANY ($1::bigint[])

-- name: locked_candidates
-- Reads in order and locks, until there are enough. Of a group, only the first member that this statement sees is taken: if
-- another claim has locked that one, this statement has locked the next one, and refuses it. The limit in heads is there for
-- the planner, which would otherwise sort the queue; members beyond it are refused. While they were locked, other claims did
-- not see the refused members, so consumers are woken; a claim that takes nothing tries again itself. Without groups, last is
-- empty, and nothing is read for heads.
taken AS MATERIALIZED (
    SELECT d.ctid AS row_id, d.message, d.rank, d.grp, d.doubt FROM delivery d
    WHERE (SELECT open AND NOT due FROM queue_state) AND d.queue = $1 AND d.state = 0 AND {where} AND {group_is_free}
    ORDER BY d.rank, d.message LIMIT $2 FOR UPDATE OF d SKIP LOCKED
), last AS MATERIALIZED (
    SELECT rank, message FROM taken WHERE grp IS NOT NULL ORDER BY rank DESC, message DESC LIMIT 1
), heads AS MATERIALIZED (
    SELECT DISTINCT ON (grp) grp, message FROM (
        SELECT d.grp, d.rank, d.message FROM delivery d
        WHERE d.queue = $1 AND d.state = 0 AND {where}
            AND (d.rank, d.message) <= ((SELECT rank FROM last), (SELECT message FROM last))
            AND (d.grp IN (SELECT grp FROM taken WHERE grp IS NOT NULL)) IS TRUE
        ORDER BY d.rank, d.message LIMIT $2 * 64) m
    ORDER BY grp, rank, message
), locked AS MATERIALIZED (
    SELECT * FROM taken WHERE grp IS NULL OR message IN (SELECT message FROM heads)
), refused AS MATERIALIZED (
    SELECT wake_up($1) FROM heads WHERE message NOT IN (SELECT message FROM locked)
        AND (SELECT count(*) FROM locked) > 0 LIMIT 1
), found AS (SELECT message FROM taken UNION ALL SELECT 0 FROM refused)

-- name: merged_candidates
-- The first of each branch, merged, then locked: a lock on deliveries that are not taken would hide them from other claims.
-- {reach}: how many times the limit to consider, after a claim found only locked ones.
found AS MATERIALIZED (
    SELECT DISTINCT rank, message, grp FROM ({branches}) b ORDER BY rank, message LIMIT $2 * {reach}
), heads AS MATERIALIZED (
    SELECT message FROM found WHERE grp IS NULL
    UNION ALL
    SELECT message FROM (
        SELECT DISTINCT ON (grp) message FROM found WHERE grp IS NOT NULL ORDER BY grp, rank, message) m
), locked AS MATERIALIZED (
    SELECT d.ctid AS row_id, d.message, d.rank, d.grp, d.doubt FROM delivery d
    WHERE d.queue = $1 AND d.message = ANY (ARRAY(SELECT message FROM heads)) AND d.state = 0
    ORDER BY d.rank, d.message LIMIT $2 FOR UPDATE OF d SKIP LOCKED
)

-- name: looked_candidates
-- As merged_candidates, of what `first_candidates` finds among the first ready deliveries. Nothing is taken if that is less than
-- the limit: then a scan finds more.
found AS MATERIALIZED (
    SELECT rank, message, grp FROM ({first}) f WHERE (SELECT open AND NOT due FROM queue_state)
), heads AS MATERIALIZED (
    SELECT message FROM found WHERE grp IS NULL
    UNION ALL
    SELECT message FROM (
        SELECT DISTINCT ON (grp) message FROM found WHERE grp IS NOT NULL ORDER BY grp, rank, message) m
), locked AS MATERIALIZED (
    SELECT d.ctid AS row_id, d.message, d.rank, d.grp, d.doubt FROM delivery d
    WHERE (SELECT count(*) FROM found) >= $2 AND d.queue = $1 AND d.message = ANY (ARRAY(SELECT message FROM heads))
        AND d.state = 0
    ORDER BY d.rank, d.message LIMIT $2 FOR UPDATE OF d SKIP LOCKED
)

-- name: branch
-- All branches with one text: a lookup in the index for each of their values.
SELECT x.rank, x.message, x.grp FROM unnest({arrays}) AS v ({names}) CROSS JOIN LATERAL (
    SELECT d.rank, d.message, d.grp FROM delivery d
    WHERE (SELECT open AND NOT due FROM queue_state) AND d.queue = $1 AND d.state = 0 AND {where} AND {group_is_free}
    ORDER BY d.rank, d.message LIMIT $2 * {reach}) x

-- name: group_is_free
-- A member of a group is no candidate while another member is leased, or delayed after a nack. Not NOT EXISTS, for which
-- the planner would first read all leased and delayed deliveries.
(d.grp IS NULL OR (
    SELECT b.message FROM delivery b
    WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)

-- name: candidates
-- Queue, limit, then the parameters of the gaps. In the order of the queue.
SELECT d.message, d.rank, d.grp, d.doubt{columns} FROM delivery d{join}
WHERE d.queue = $1 AND d.state = 0 AND {where}
    AND (d.grp IS NULL OR (
        SELECT b.message FROM delivery b
        WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)
ORDER BY d.rank, d.message LIMIT $2

-- name: candidate_join
-- LATERAL, with a limit: PostgreSQL reads the deliveries first, in order, and then their messages.
CROSS JOIN LATERAL (SELECT * FROM message WHERE id = d.message LIMIT 1) m

-- name: first_candidates
-- As candidates, among the first {most} ready deliveries; none if some are aside, which may come first.
SELECT d.message, d.rank, d.grp, d.doubt FROM (
    SELECT message, rank, grp, doubt, keys FROM delivery WHERE queue = $1 AND state = 0 AND rank <= 0 AND aside = 0
        AND (SELECT message FROM delivery WHERE queue = $1 AND aside = 1 LIMIT 1) IS NULL
    ORDER BY rank, message LIMIT {most}) d{join}
WHERE {where}
    AND (d.grp IS NULL OR (
        SELECT b.message FROM delivery b
        WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)
ORDER BY d.rank, d.message LIMIT $2

-- name: key_range
{key} >= {first} AND {key} < {end}

-- name: range_candidates
-- Queue, limit, then the parameters of the gap. As candidates, but unordered, so that the index on the header can be used.
SELECT d.message, d.rank, d.grp, d.doubt FROM delivery d{join}
WHERE d.queue = $1 AND d.state = 0 AND {where}
    AND (d.grp IS NULL OR (
        SELECT b.message FROM delivery b
        WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)
LIMIT $2

-- name: range_by_key
-- Queue, limit, then the parameters of the gaps. The number of keys in the range, up to {most}; then, if they are fewer, the
-- first candidates of each. The recursion jumps from key to key in the index on the header.
WITH RECURSIVE found (key) AS (
    (SELECT {key} FROM delivery d WHERE d.queue = $1 AND d.state = 0 AND {key} >= {first} AND {key} < {end}
     ORDER BY {key} LIMIT 1)
    UNION ALL
    SELECT (SELECT {key} FROM delivery d WHERE d.queue = $1 AND d.state = 0 AND {key} > f.key AND {key} < {end}
        ORDER BY {key} LIMIT 1)
    FROM found f WHERE f.key IS NOT NULL
), keys AS MATERIALIZED (SELECT key FROM found WHERE key IS NOT NULL LIMIT {most})
SELECT count(*), 0, NULL::text, 0 FROM keys
UNION ALL
SELECT x.message, x.rank, x.grp, x.doubt FROM keys k CROSS JOIN LATERAL (
    SELECT d.message, d.rank, d.grp, d.doubt FROM delivery d{join}
    WHERE (SELECT count(*) FROM keys) < {most} AND d.queue = $1 AND d.state = 0 AND {key} = k.key AND {where}
        AND (d.grp IS NULL OR (
            SELECT b.message FROM delivery b
            WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)
    ORDER BY d.rank, d.message LIMIT $2) x

-- name: scan_page
-- Queue, limit, after which message, then the parameters of the gaps. The next deliveries by id, in all states: their
-- number and the last id; then those that match.
WITH page AS MATERIALIZED (
    SELECT message, rank, keys FROM delivery WHERE queue = $1 AND message > $3 ORDER BY message LIMIT $2
)
SELECT count(*), max(message) FROM page
UNION ALL (SELECT 0, d.message FROM page d WHERE {where} LIMIT {most})

-- name: scan_messages
-- As scan_page, for a condition on messages. Where at least one message in four of this range of ids is in the queue, the
-- range is read: a lookup of each message takes five times as long. Of a small queue in a large database, each is
-- looked up.
WITH page AS MATERIALIZED (
    SELECT count(*) AS n, max(message) AS last, max(message) - min(message) < 4 * count(*) AS is_dense
    FROM (SELECT message FROM delivery WHERE queue = $1 AND message > $3 ORDER BY message LIMIT $2) p
)
SELECT n, last FROM page
UNION ALL (
    SELECT 0, d.message FROM message m CROSS JOIN LATERAL (
        SELECT message, rank, keys FROM delivery WHERE queue = $1 AND message = m.id LIMIT 1) d
    WHERE (SELECT is_dense FROM page) AND m.id > $3 AND m.id <= (SELECT last FROM page) AND {where} LIMIT {most})
UNION ALL (
    SELECT 0, d.message FROM delivery d{join}
    WHERE NOT (SELECT is_dense FROM page) AND d.queue = $1 AND d.message > $3 AND d.message <= (SELECT last FROM page)
        AND {where} LIMIT {most})

-- name: running_transactions
-- The oldest running transaction, and the next one; equal when none is running.
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() s

-- name: claimable_among
-- Queue, limit, messages. Sorted apart: in one step with the lookups, the planner would rather read the whole queue in
-- order than sort.
WITH known AS MATERIALIZED (
    SELECT d.message, d.rank, d.grp, d.doubt FROM delivery d
    WHERE d.queue = $1 AND d.message = ANY ($3::bigint[]) AND d.state = 0
        AND (d.grp IS NULL OR (
            SELECT b.message FROM delivery b
            WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)
)
SELECT message, rank, grp, doubt FROM known ORDER BY rank, message LIMIT $2

-- name: after_position
(d.rank, d.message) > ({rank}, {message})

-- name: not_skipped
d.message <> ALL ({ids}::bigint[])

-- name: lease
-- Queue, messages, now, lease, doubt. Deliveries that are no longer ready, or whose group is busy now, are left out. Locked
-- in no order: locked rows are skipped, so there is no deadlock, and with an order the planner would read the whole queue.
WITH locked AS MATERIALIZED (
    SELECT d.message FROM delivery d
    WHERE d.queue = $1 AND d.message = ANY ($2::bigint[]) AND d.state = 0
        AND (d.grp IS NULL OR (
            SELECT b.message FROM delivery b
            WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NULL)
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE delivery d
SET state = 2, visible_at = coalesce($3::bigint, now_us()) + $4::bigint,
    token = (random() * 9007199254740991)::bigint, attempts = d.attempts + 1, aside = 0,
    doubt = greatest(d.doubt & 2, $5::bigint)
WHERE d.queue = $1 AND d.message = ANY (ARRAY(SELECT message FROM locked))
RETURNING d.message

-- name: leased
-- Queue, messages. Sorted apart, see claimable_among.
WITH known AS MATERIALIZED (
    SELECT message, rank, token, attempts, grp FROM delivery WHERE queue = $1 AND message = ANY ($2::bigint[])
)
SELECT d.message, d.token, d.attempts, d.grp, {columns}
FROM (SELECT * FROM known ORDER BY rank, message) d
CROSS JOIN LATERAL (SELECT * FROM message WHERE id = d.message LIMIT 1) m
ORDER BY d.rank, d.message

-- name: not_aside
d.aside = 0

-- name: aside
d.aside = 1

-- name: busy_in_the_way
-- Queue, how many to look at. How many of the first ready deliveries are members of busy groups.
SELECT count(*) FROM (
    SELECT grp FROM delivery WHERE queue = $1 AND state = 0 AND rank <= 0 AND aside = 0
        AND (SELECT message FROM delivery WHERE queue = $1 AND grp IS NOT NULL
            AND (state = 2 OR (state = 1 AND attempts > 0)) LIMIT 1) IS NOT NULL
    ORDER BY rank, message LIMIT $2) d
WHERE d.grp IS NOT NULL AND (
    SELECT b.message FROM delivery b
    WHERE b.queue = $1 AND b.grp = d.grp AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0)) LIMIT 1) IS NOT NULL

-- name: set_aside
-- Queue, how many to look at: those of the first ready deliveries that are members of busy groups. The members at work are
-- locked, so that no group becomes free meanwhile.
WITH first AS MATERIALIZED (
    SELECT message, grp FROM delivery WHERE queue = $1 AND state = 0 AND rank <= 0 AND aside = 0
    ORDER BY rank, message LIMIT $2
), busy AS MATERIALIZED (
    SELECT b.grp FROM delivery b
    WHERE b.queue = $1 AND b.grp = ANY (ARRAY(SELECT DISTINCT grp FROM first WHERE grp IS NOT NULL))
        AND (b.state = 2 OR (b.state = 1 AND b.attempts > 0))
    FOR UPDATE SKIP LOCKED
), members AS MATERIALIZED (
    SELECT d.message FROM delivery d
    WHERE d.queue = $1 AND d.message = ANY (ARRAY(
            SELECT f.message FROM first f WHERE f.grp = ANY (ARRAY(SELECT grp FROM busy))))
        AND d.state = 0
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE delivery d SET aside = 1
WHERE d.queue = $1 AND d.message = ANY (ARRAY(SELECT message FROM members)) RETURNING 1

-- name: ack
-- Queue, message, token, now: one array each. The statement also archives what it acks, if the queue keeps an archive: the
-- messages are deleted at its end. It wakes consumers if a group has become free.
WITH acked AS (
    DELETE FROM delivery d
    WHERE d.queue = ($1::bigint[])[1] AND d.message = ANY ($2::bigint[]) AND d.state = 2
        AND d.token = ($3::bigint[])[array_position($2::bigint[], d.message)]
    RETURNING d.message, d.token, d.attempts, d.grp
), archived AS MATERIALIZED (
    SELECT CASE WHEN (SELECT q.archive FROM queue q WHERE q.id = ($1::bigint[])[1]) THEN (
        SELECT keep_acked(($1::bigint[])[1], coalesce(($4::bigint[])[1], now_us()),
            array_agg(message), array_agg(attempts), array_agg(grp)) FROM acked) END
), freed AS MATERIALIZED (SELECT wake_up(($1::bigint[])[1]) FROM acked WHERE grp IS NOT NULL LIMIT 1)
SELECT message, token FROM acked WHERE (SELECT count(*) FROM archived) + (SELECT count(*) FROM freed) > 0

-- name: nack
-- Queue, message, token, now, delay, reason: one array each.
WITH changed AS (
    UPDATE delivery d SET
        state = CASE WHEN d.attempts >= q.max_attempts AND q.max_attempts > 0 THEN 3 WHEN r.delay > 0 THEN 1 ELSE 0 END,
        visible_at = coalesce(r.now, now_us())
            + CASE WHEN d.attempts >= q.max_attempts AND q.max_attempts > 0 THEN 0 ELSE r.delay END,
        reason = r.reason
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
        AS r (queue, message, token, now, delay, reason)
    JOIN queue q ON q.id = r.queue
    WHERE d.queue = ($1::bigint[])[1] AND d.message = ANY ($2::bigint[]) AND d.message = r.message
    AND d.token = r.token AND d.state = 2
    RETURNING d.message, d.token
), woken AS MATERIALIZED (
    SELECT wake_up(q) FROM (SELECT DISTINCT q FROM unnest($1::bigint[]) AS q) AS named)
SELECT message, token FROM changed WHERE (SELECT count(*) FROM woken) > 0

-- name: bury
-- Queue, message, token, now, reason: one array each. It wakes consumers if a group has become free.
WITH buried AS (
    UPDATE delivery d SET state = 3, visible_at = coalesce(r.now, now_us()), reason = r.reason
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
        AS r (queue, message, token, now, reason)
    WHERE d.queue = ($1::bigint[])[1] AND d.message = ANY ($2::bigint[]) AND d.message = r.message
        AND d.token = r.token AND d.state = 2
    RETURNING d.message, d.token, d.grp
), freed AS MATERIALIZED (SELECT wake_up(($1::bigint[])[1]) FROM buried WHERE grp IS NOT NULL LIMIT 1)
SELECT message, token FROM buried WHERE (SELECT count(*) FROM freed) >= 0

-- name: extend
-- Queue, message, token, now, lease: one array each. A lease is never made shorter.
UPDATE delivery d SET visible_at = greatest(d.visible_at, coalesce(r.now, now_us()) + r.lease)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS r (queue, message, token, now, lease)
WHERE d.queue = ($1::bigint[])[1] AND d.message = ANY ($2::bigint[]) AND d.message = r.message
    AND d.token = r.token AND d.state = 2
RETURNING d.message, d.token

-- name: release
-- Queue, message, token, now: one array each.
WITH changed AS (
    UPDATE delivery d SET state = 0, visible_at = coalesce(r.now, now_us()), attempts = d.attempts - 1
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS r (queue, message, token, now)
    WHERE d.queue = ($1::bigint[])[1] AND d.message = ANY ($2::bigint[]) AND d.message = r.message
    AND d.token = r.token AND d.state = 2
    RETURNING d.message, d.token
), woken AS MATERIALIZED (
    SELECT wake_up(q) FROM (SELECT DISTINCT q FROM unnest($1::bigint[]) AS q) AS named)
SELECT message, token FROM changed WHERE (SELECT count(*) FROM woken) > 0

-- name: existing_ids
-- Queue, messages: which of them exist, in any state.
SELECT message FROM delivery WHERE queue = $1 AND message = ANY ($2::bigint[])
