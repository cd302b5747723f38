-- statement release
-- Frees a lease if it is still this very grant: a release repeated after a lost reply cannot free a
-- newer one. By primary key; no other row is touched, so a release cannot be a deadlock's victim.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3

-- statement find_grant
-- Finds the grant of an acquire whose reply was lost: its token, or no row.
-- $1 name  $2 my session  $3 grant id
select token from rowlock_lock where name = $1 and session = $2 and grant_id = $3

-- statement force_release
-- Takes a lease from its holder, compare-and-set; the token rises, so the holder's fences fail. The note of the free
-- row is who did it: a history records it.
-- $1 name  $2 probed token  $3 probed session  $4 by whom, or NULL
update rowlock_lock
   set token = token + 1, session = null, grant_id = null, thread = null, note = $4,
       acquired_at = null, deadline = null, changed_at = {now}
 where name = $1 and token = $2 and session = $3

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
select {until(deadline)} from rowlock_lock where name = $1 and session = $2

-- statement adopted_lease
-- A lease that our session has adopted: its token, what is left of its own deadline, how long it was to last from its
-- acquisition on (NULL: it has none), the client that asks for it, and its reason.
-- $1 name  $2 my session  $3 my grant id
select token, {until(deadline)}, {micros(deadline)} - {micros(acquired_at)}, case when asked_for = grant_id then asked_by end, reason
  from rowlock_lock where name = $1 and session = $2 and grant_id = $3

-- statement glance
-- Whether a lease is free, and whose it is: what a waiter asks whose ticket was just committed, without the costly rest of
-- `probe`. Reads only. No row: it has none, and is free.
-- $1 name
-- → whether it may be granted, its grant id, its session, whether its client may keep it after its release, what is left
--   of it in µs
select {free}, l.grant_id, l.session, coalesce(l.grant_id in (l.retained, - l.retained), 0),
       {until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))}
  from rowlock_lock l left join rowlock_session s on s.id = l.session
 where l.name = $1

-- statement end_retention
-- Records which thread holds a lease, and since when; its client no longer keeps the lease after the release. The client
-- sends this after a recall. It also sends this, with a greater token, before the first fence of a local grant: a local
-- grant changes no row, so an older snapshot would show it as current.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 for how long it has been held, in µs
-- $7 the row's token  $8 the new one, or the same
-- acquired_at changes in any case: by that the history knows a change of ours (retain on SQLite has the same).
update rowlock_lock
   set token = $8, retained = null, thread = $4, note = $5,
       acquired_at = {now} - $6 + ({now} - $6 = acquired_at)
 where name = $1 and session = $2 and grant_id = $3 and token = $7

-- statement withdraw_retention
-- Asks through the row, where no message arrives: this grant is to be retained no further. Its client learns of it from
-- the next `retain`, which changes no row then. Others still find the lease retained, and recall it. A column that names
-- a grant needs no clearing. The client grants the lease to its threads until then, or until its time is up: the token
-- and the holder are as before.
-- $1 name  $2 session  $3 grant id
update rowlock_lock set retained = - grant_id
 where name = $1 and session = $2 and grant_id = $3 and retained = grant_id

-- statement extend_lease
-- Sets a lease's own deadline to so long from now, unless that has passed; never earlier than it was, and always a change,
-- by which the history knows it. The row's token rises with it: a client that judged the lease over by its old deadline takes it by compare-and-set on the old token, and
-- would take a lease that lives. So every move of a deadline to a later time changes the row's token; a shortened one
-- (shorten_lease) leaves what was judged free as it is. The lease keeps its own token: the row's is one that is reserved for
-- this grant, as by `retain`, and the next grant goes beyond it.
-- The transaction has locked the row (lock_lease), and has then read that its session lives and that its client knows every
-- change of the session's rows. Not a lease that another client has asked for (asked_for).
-- The next token is passed over, as by renew_lease.
-- $1 name  $2 my session  $3 the row's token  $4 its new one: $3 + 2  $5 how long from now, in µs
update rowlock_lock
   set token = $4, deadline = {greatest}(deadline + 1, {now} + $5), changed_at = {now}
 where name = $1 and session = $2 and token = $3 and deadline > {now} and not coalesce(asked_for = grant_id, 0)
