-- MariaDB only. Frees several grants by one statement and one commit, where nobody is seen waiting. A
-- ticket that is committed behind the snapshot is looked for afterwards, as after every release here.
-- It waits for no row (our own fenced transaction may have it): then all is undone (1205).
-- $1 session  $2 … $17 names  $18 … $33 grant ids; both may repeat
set statement innodb_lock_wait_timeout = 0 for
{release_all}
