-- statement release
-- Frees a lease if it is still this very grant: a release repeated after a lost reply cannot free a
-- newer one. By primary key; no other row is touched, so a release cannot be a deadlock's victim.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement find_grant
-- Finds the grant of an acquire whose reply was lost: its token, or no row.
-- $1 name  $2 my session  $3 grant id
select token from rowlock_lock
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement force_release
-- Takes a lease from its holder, compare-and-set; the token rises, so the holder's fences fail. The note of the free
-- row is who did it: a history records it.
-- $1 name  $2 probed token  $3 probed session  $4 by whom, or NULL
update rowlock_lock
   set token = token + 1, session = null, grant_id = null, thread = null, note = $4::text,
       acquired_at = null, deadline = null, changed_at = {now}
 where name = $1::text and token = $2::bigint and session = $3::bigint

-- statement held_leases
-- Returns which of these names' rows are grants of a session, for a holder that compares its state with the
-- table. By primary key: no index leads from a session to its leases. Reads only.
-- $1 session  $2 … $17 names; may repeat
-- → grant id, token
select l.grant_id, l.token
  from rowlock_lock l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1

-- statement list
-- Shows a page of names to an operator, by name: as inspect. Each half reads no further than the page.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select {info}
  from (select a.name
          from (select l.name from rowlock_lock l
                 where l.name >= $1 and l.name < $2 and l.name > $3 and l.capacity is null and l.used = 0
                 order by l.name limit $4) a
        union
        select b.name
          from (select distinct w.name from rowlock_ticket w {join} rowlock_session m
                 where w.name >= $1 and w.name < $2 and w.name > $3 and w.weight is null
                   and m.id = w.session and {live}
                   and not exists (select 1 from rowlock_lock k
                                    where k.name = w.name and (k.capacity is not null or k.used <> 0))
                 order by w.name limit $4) b
        order by name limit $4) n
       left join rowlock_lock l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 order by n.name

-- statement lease_deadline
-- What is left of a lease's own deadline in µs. The transaction has locked its row.
-- $1 name  $2 session
select {until(deadline)} from rowlock_lock where name = $1::text and session = $2::bigint

-- statement adopted_lease
-- A lease that our session has adopted: its token, what is left of its own deadline, how long it was to last from its
-- acquisition on (NULL: it has none), the client that asks for it, and its reason.
-- $1 name  $2 my session  $3 my grant id
select token, {until(deadline)}, ({micros(deadline)} - {micros(acquired_at)}),
       case when asked_for = grant_id then asked_by end, reason
  from rowlock_lock where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement glance
-- Whether a lease is free: what a waiter asks whose ticket was just committed, without the costly rest of `probe`. Reads
-- only. No row: it has none, and is free.
-- $1 name
-- → whether it may be granted, its remaining time in µs
select {glance}
  from rowlock_lock l left join rowlock_session s on s.id = l.session
 where l.name = $1::text

-- statement extend_lease
-- Sets a lease's own deadline to so long from now, unless that has passed; never earlier than it was, and always a change,
-- by which the history knows it. The row's token rises with it: a client that judged the lease over by its old deadline takes it by compare-and-set on the old token, and
-- would take a lease that lives. So every move of a deadline to a later time changes the row's token; a shortened one
-- (shorten_lease) leaves what was judged free as it is. The lease keeps its own token: the row's is one that is reserved for
-- this grant, and the next grant goes beyond it.
-- The transaction has locked the row (lock_lease), and has then read that its session lives and that its client knows every
-- change of the session's rows. Not a lease that another client has asked for (asked_for).
-- The next token is passed over, as by renew_lease.
-- $1 name  $2 my session  $3 the row's token  $4 its new one: $3 + 2  $5 how long from now, in µs
update rowlock_lock
   set token = $4::bigint, deadline = {greatest}(deadline + {span(1)}, {now} + {span($5)}), changed_at = {now}
 where name = $1::text and session = $2::bigint and token = $3::bigint and deadline > {now}
   and not coalesce(asked_for = grant_id, false)

-- statement adopt_lease
-- Moves a lease that its holder offers to our session, as another grant, by compare-and-set on the row's own columns. The
-- deadline, the note and the time of the acquisition stay, and a request for the release is one for the new grant; not a
-- lease that was asked for at once. The transaction has locked the row, and the session of the giver, which lives. Our
-- session must live here.
-- A promised token is skipped, as by reclaim_lease.
-- $1 name  $2 my session  $3 the giver's session  $4 its token  $5 its grant id  $6 my grant id
update rowlock_lock
   set session = $2::bigint, asked_for = case when asked_for = grant_id then $6::bigint end,
       grant_id = $6::bigint, thread = null, token = {token_of_move(rowlock_lock)}, {unpromise}changed_at = {now}
 where name = $1::text and session = $3::bigint and token = $4::bigint and grant_id = $5::bigint
   and not coalesce(deadline <= {now}, false)
   and not coalesce(asked_for = grant_id and asked_by is null, false)
   and (select 1 from rowlock_session m {join} rowlock_token_floor f where m.id = $2::bigint and f.id = 1 and {live}) = 1

-- statement reclaim_lease
-- Moves a lease of a predecessor, ended in this transaction, to our session by compare-and-set on the row's
-- own columns; the grant id stays. A promised token is skipped. No client has been notified of a promise that
-- this breaks: a session that may be reclaimed hands its leases over durably (`hand_over_to`).
-- Our session must live here.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lock
   set session = $2::bigint, thread = null, token = {token_of_move(rowlock_lock)}, {unpromise}acquired_at = {now},
       changed_at = {now}
 where name = $1::text and session = $3::bigint and token = $4::bigint and not coalesce(deadline <= {now}, false)
   and (select 1 from rowlock_session m {join} rowlock_token_floor f where m.id = $2::bigint and f.id = 1 and {live}) = 1

-- statement renew_lease
-- Sets the deadline of a lease to so long from now, with a new token. A waiter that judged the lease over by its old
-- deadline takes it by compare-and-set on the old token: were the token the same, it would take a lease that lives. The
-- transaction has locked the row, and then its session, which is to live longer than this deadline.
-- A promised token is skipped, as by reclaim_lease.
-- $1 name  $2 session  $3 token  $4 how long from now, in µs
update rowlock_lock
   set token = {token_of_move(rowlock_lock)}, {unpromise}deadline = {now} + {span($4)}, changed_at = {now}
 where name = $1::text and session = $2::bigint and token = $3::bigint and deadline > {now}
   and (select 1 from rowlock_token_floor f where f.id = 1) = 1

-- statement confirm_grant
-- Makes a grant that was found again durable by a later commit of our own. Changes the row, so that there is
-- something to commit.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock set changed_at = {now_after(changed_at)}
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement lock_lease
-- Locks a lease's row for the transaction, if it is still this grant. Lease first, then session
-- (docs/adr/0010).
-- $1 name  $2 token  $3 session
{bounded_select} 1 from rowlock_lock where name = $1::text and token = $2::bigint and session = $3::bigint {for_update}

-- statement restore_lease
-- Recreates the row of a lease that has waiters, as free, if the reaper has deleted it: grant_next needs it.
-- Its token is the floor, which no grant goes below.
-- $1 name
insert into rowlock_lock (name, token, changed_at)
select $1::text, o.floor, {now} from rowlock_token_floor o where o.id = 1
on conflict (name) do nothing

-- statement shorten_lease
-- Sets a lease's deadline to the time at which its session would expire without another heartbeat, or to so long from
-- now, whichever is later, unless the lease ends before that. Never later than it was: a lease that was judged free stays free.
-- The transaction has locked the lease's row, and then the session's by bump_revision. A heartbeat either came before
-- that, and its expires_at is read here, or is refused until its client knows the new revision, which the client adopts
-- only after it has read this deadline.
-- After a request without a time (asked_by null) a later one with a time changes nothing.
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks, or NULL: the holder gives it up at once  $5 why; of a request at once, who and why
update rowlock_lock
   set deadline = (select {least}(coalesce(rowlock_lock.deadline, {greatest}(m.expires_at, {now} + {span($3)})),
                                  {greatest}(m.expires_at, {now} + {span($3)}))
                     from rowlock_session m where m.id = $2::bigint),
       reason = case when $4::text is null or not coalesce(asked_for = grant_id and asked_by is null, false)
                     then $5::text else reason end,
       asked_by = case when not coalesce(asked_for = grant_id and asked_by is null, false) then $4::text end,
       asked_for = grant_id
 where name = $1::text and (select 1 from rowlock_session m where m.id = $2::bigint) = 1
