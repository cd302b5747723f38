-- The server's clock in microseconds since 1970, whatever the session's time zone. There is no
-- UPDATE … RETURNING here, so an update of a row whose version is a time reads the clock first and
-- sends what it will write. That the reading is older than the write, if that waits for the row, does
-- no harm: the version moves from the one seen to max(clock, seen + 1), and the write's predicate is
-- that the row still has the one seen.
select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
