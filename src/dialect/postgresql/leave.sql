-- The last words of a client whose session is named by no lease and no ticket: removes the session and
-- tells which of the names that it has released lately have a live waiter, to be served. It is
-- delete_session and waited_for in one round trip. The releases were committed before this snapshot was
-- taken; whoever commits a ticket behind it looks after that, as everybody does who writes one, and
-- finds the lease free. What is deleted here is no row that the look reads, or one that it may see or
-- not: nobody waits by a session without tickets. If the reply is lost the session is gone or expires,
-- and those who wait find the lease by their own looks.
-- $1 session  $2 … $17 names; may repeat
with gone as (
         delete from rowlock_session where id = $1::bigint)
select distinct n.name
  from pg_catalog.unnest(array[$2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text,
                   $10::text, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text,
                   $17::text]) as n(name)
 where {waited_n}
