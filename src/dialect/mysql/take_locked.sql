-- Grants leases whose rows this transaction has locked (lock_all), so it waits for nothing: of those
-- only whose token under that lock is the one that a look before found free.
-- $1 … $98 as take_all
{take_all}
