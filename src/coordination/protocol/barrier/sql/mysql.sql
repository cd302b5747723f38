-- statement lock_barrier_name
-- As barrier_name, and locks the row for the transaction.
-- $1 name
{bounded_select} kind, latest from rowlock_barrier where name = $1 and generation = 0 for update

-- statement lock_round
-- Locks a round for the transaction, and reads it.
-- $1 name  $2 generation
-- → generation, kind, size, whether losses count, arrived, departed, opened, closed
{bounded_select} generation, kind, size, loss_counts, arrived, departed, opened, closed
  from rowlock_barrier where name = $1 and generation = $2 for update
