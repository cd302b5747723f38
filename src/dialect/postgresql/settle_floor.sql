-- Declares the floor settled when it was raised longer ago than any statement can run: no insert that
-- computed its token under the old floor is still waiting.
-- $1 grace in µs
update rowlock_token_floor set settled = floor
 where id = 1 and settled < floor
   and raised_at <= clock_timestamp() - $1::bigint::float8 * interval '1 microsecond'
