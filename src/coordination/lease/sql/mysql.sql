-- statement take
-- Grants a free lease whose row exists: compare-and-set on the probed token. Every grant changes the
-- token, and a row that is free at one token is never held at it again, so a probe that became stale
-- fails and never steals. One row changed: granted, and the token is known. To ourselves, or, together
-- with the deletion of a ticket, to a waiter.
-- The look before said that nobody waits. A ticket that was committed between the two is passed: its
-- enqueue and our acquire overlapped, and either order is right.
-- The session that gets it lives here: who was seen a while ago may be gone (fragment live).
-- $1 name  $2 session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lease
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement insert_lease
-- Grants a lease whose row does not exist. The token is computed here and not from the probe: between
-- the two a stopped client may sleep longer than the reaper's grace. If the floor moved since the
-- probe nothing is inserted, if another inserted first the name is taken (1062): probe again.
-- Our session lives here (fragment live).
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 new token: the probed floor + 1
insert into rowlock_lease (name, token, session, grant_id, thread, note,
                           acquired_at, changed_at, deadline)
select $1, f.floor + 1, $2, $3, $4, $5, {now}, {now}, {now} + $6
  from rowlock_token_floor f where f.id = 1 and f.floor + 1 = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement probe
-- A look at a lease: reads, locks nothing, writes nothing. Every grant begins with one.
-- $1 name  $2 my session
-- → the token a grant would carry, whether my session lives, {look}
select greatest(coalesce(l.token, 0), f.floor) + 1,
       (select count(*) from rowlock_session m where m.id = $2 and {live}),
       {look}
  from rowlock_token_floor f
       left join rowlock_lease l on l.name = $1
       left join rowlock_session s on s.id = l.session
 where f.id = 1

-- statement confirm_grant
-- Makes sure that a grant which was found again is durable: a commit of our own behind it. MySQL
-- counts changed rows, so the row must change: never to the time it has.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and session = $2 and grant_id = $3

-- statement confirm_lease
-- Makes sure that what was read of a lease is durable, whoever wrote it: a commit of our own behind it. MySQL
-- counts changed rows, so the row must change. No row changed: it is not at that token any more.
-- $1 name  $2 the token that was read
update rowlock_lease set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and token = $2

-- statement lock_lease
-- Locks a lease's row for the transaction, if it is still this grant. Lease first, then session: as every
-- transaction that needs both (docs/adr/0010).
-- $1 name  $2 token  $3 session
select 1 from rowlock_lease where name = $1 and token = $2 and session = $3 for update

-- statement shorten_lease
-- Lets a lease end when its session would without another heartbeat, unless it ends before that. Never
-- later: a lease that was judged free stays free. The transaction has locked the lease's row, and then
-- the session's by bump_revision: a heartbeat either came before that, and its expires_at is read here, or is
-- refused until its client knows the new revision, which it takes over only after it has read this deadline.
-- No row: the lease ends earlier than that.
-- $1 name  $2 session
update rowlock_lease l straight_join rowlock_session m
   set l.deadline = m.expires_at
 where l.name = $1 and m.id = $2 and (l.deadline is null or l.deadline > m.expires_at)

-- statement reclaim_lease
-- Moves a lease of a predecessor, ended in this transaction, to our session, compare-and-set on the
-- row's own columns; the grant id stays. Our session lives here (fragment live).
-- The next token is left out. The row may be what a crash of the server has left: it may have been given
-- on by a commit that others have seen and the disk has not, and somebody may have been given that token.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lease
   set session = $2,
       token = greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 2,
       acquired_at = {now}, changed_at = {now}
 where name = $1 and session = $3 and token = $4 and not coalesce(deadline <= {now}, 0)
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement inspect
-- One name for people. No row if it has neither a lease nor a live waiter (who waits for a lease that
-- was reaped makes it anew).
-- $1 name
select {info}
  from (select cast($1 as binary) as name) n
       left join rowlock_lease l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 where l.name is not null or exists (select 1 {queue})

-- statement list
-- A page of names for people, by name: those that have a lease, and those that have only waiters (of
-- a lease that was reaped). Each half reads no further than the page.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select {info}
  from (select a.name
          from (select l.name from rowlock_lease l
                 where l.name >= $1 and l.name < $2 and l.name > $3
                 order by l.name limit $4) a
        union
        select b.name
          from (select distinct w.name from rowlock_waiter w straight_join rowlock_session m
                 where w.name >= $1 and w.name < $2 and w.name > $3
                   and m.id = w.session and {live}
                 order by w.name limit $4) b
        order by name limit $4) n
       left join rowlock_lease l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 order by n.name

-- statement restore_lease
-- Makes the row of a lease that is waited for, free, if the reaper has deleted it: there must be a row
-- to compare and set. Its token is the floor, which no grant goes below. If it is there by now, 1062.
-- $1 name
insert into rowlock_lease (name, token, changed_at)
select $1, o.floor, {now} from rowlock_token_floor o where o.id = 1
