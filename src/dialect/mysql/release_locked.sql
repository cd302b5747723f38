-- Frees grants whose rows this transaction has locked (lock_all), so it waits for nothing.
-- $1 … $33 as release_all
{release_all}
