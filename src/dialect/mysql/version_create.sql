-- Makes a resource; no row changed if it is there already, erased or not. Sent only after a plain
-- read found none: a duplicate found by INSERT leaves a shared lock on the row, and two
-- transactions that both have one and then update deadlock. Of several at once, one inserts; the
-- others wait for its commit. IGNORE and not ON DUPLICATE KEY UPDATE: the count of the latter means
-- different things to different drivers. It hides no other mistake, as the name was checked and the
-- rest are constants. The times are for people: when the statement began, whatever the time zone.
-- $1 resource
insert ignore into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
        timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))
