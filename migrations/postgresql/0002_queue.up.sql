-- What a place in a queue passes on to the lease that it becomes, and keys for the queue's hot path.
-- The table stays, and with it the rights that were given on it. Tickets begin anew: before this
-- migration nobody took places in queues.
--   name          of the lease that is waited for
--   ticket        the lowest is served first
--   session       who waits. The index is for a client that looks at all its places at once, for the
--                 deletion of its session, and for whoever follows a circle of waiters from a holder
--                 to what that waits for
--   grant_id      becomes the grant_id of the lease
--   mode          0 = exclusive, the only one so far
--   enqueued_at   for people
--   thread, note  of the waiter; copied to the lease
--   deadline_us   the lease ends so long after its grant; null = never
-- The key is (name, ticket) and there is none on the ticket alone: "the lowest ticket of a name" with
-- LIMIT 1 would tempt the planner, where statistics are old, to walk that one past every other queue.
alter table rowlock_waiter drop column ticket;  -- and with it the key and the index
alter table rowlock_waiter
    add column ticket bigint not null generated always as identity,
    add column thread text,
    add column note text,
    add column deadline_us bigint,
    add primary key (name, ticket);
create index on rowlock_waiter (session, thread);

-- The ticket that was served last; null = none, or look through the whole queue. Until vacuum comes the
-- index keeps an entry for every ticket served before, and a look for the lowest would step over all of
-- them: thousands, where a lock goes round fast. With this it begins where the queue does.
alter table rowlock_lease add column served bigint;

-- The grant_id of the waiter to whom the token after this row's is promised; null = to nobody. It goes
-- before all others as long as it waits, and nobody else ever gets that token. So once the promise is on
-- disk the grant that fulfils it need not wait for the disk.
alter table rowlock_lease add column successor bigint;
