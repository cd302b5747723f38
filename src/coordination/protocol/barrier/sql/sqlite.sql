-- statement lock_barrier_name
-- As barrier_name. The transaction has the file's write lock.
-- $1 name
select kind, latest from rowlock_barrier where name = $1 and generation = 0

-- statement lock_round
-- Reads a round. The transaction has the file's write lock.
-- $1 name  $2 generation
-- → generation, kind, size, whether losses count, arrived, departed, opened, closed
select generation, kind, size, loss_counts, arrived, departed, opened, closed
  from rowlock_barrier where name = $1 and generation = $2
