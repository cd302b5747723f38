-- statement greatest_quorum_token
-- The greatest token that this member knows, of any name.
select greatest(b.floor, coalesce((select max(q.token) from rowlock_quorum q), 0)) from rowlock_member b where b.id = 1

-- statement quorum_leases
-- The leases that may be part of quorum locks here.
-- → name, token of the lease
select l.name, l.token from rowlock_quorum q join rowlock_lock l on l.name = q.name where l.session is not null

-- statement quorum_token
-- The token that this member knows.
-- $1 name
select token from rowlock_quorum where name = $1::text

-- statement raise_quorum_epoch
-- From its commit on no client that knows an older epoch claims or writes a token here. Waits for those that do.
-- $1 quorum  $2 epoch  $3 members
update rowlock_member set epoch = $2::bigint, members = $3::text, changed_at = {now}
 where id = 1 and quorum = $1::text and epoch < $2::bigint

-- statement read_member
-- What this database knows of its quorum. No row: it is no member.
-- → quorum, epoch, members, the server that may vote here, floor, the longest ttl in µs
select quorum, epoch, members, ready_for, floor, max_ttl_us from rowlock_member where id = 1
