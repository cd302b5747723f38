-- statement raise_quorum_token
-- Claims a token of a quorum lock, or writes one: raises what this member knows. Only for the client that has the lease
-- of the name by this grant, in a session on the server that may vote here; under the epoch that the client knows.
--
-- The member's row is locked first, shared: a change of the epoch (raise_quorum_epoch) either waits for this commit, and
-- then finds this client's lease among those that it asks for; or came before, and then the row's new version is
-- compared. The lease's row is locked next: it is this grant until the commit, so a claim of a later grant comes after
-- this one. The session is read without a lock, perhaps before a wait: if it ended since, the client does not trust
-- its lease by now, and counts no answer. If the reply is lost, a repetition raises the token once more, or not at all.
-- The commit waits for the disk, and in the log it follows the session and the grant.
-- $1 name  $2 my session  $3 grant id  $4 quorum  $5 epoch  $6 the token to write, or NULL: claims the next one
-- → the token that this member knows now; no row if it was refused
with b as materialized (
         select b.ready_for, b.floor, b.max_ttl_us from rowlock_member b
          where b.id = 1 and b.quorum = $4::text and b.epoch = $5::bigint and b.ready_for <> ''
            for share),
     l as materialized (
         select l.name, b.floor
           from b join rowlock_session m on m.id = $2::bigint and m.server_identity = b.ready_for
                                        and m.ttl_us <= b.max_ttl_us and {live}
                  join rowlock_lock l on l.name = $1::text and l.session = m.id and l.grant_id = $3::bigint
            for update of l)
insert into rowlock_quorum as q (name, token, changed_at)
select l.name, greatest(l.floor + ($6::bigint is null)::int, $6::bigint), clock_timestamp() from l
on conflict (name) do update
   set token = greatest(q.token + ($6::bigint is null)::int, excluded.token), changed_at = clock_timestamp()
returning q.token

-- statement seal_quorum_token
-- Tells this member of the token of a holder that does not count it. Only raises it; needs no grant: the guard of an older
-- holder's transaction (fence_quorum_token) is refused from here on.
-- $1 name  $2 token  $3 quorum
insert into rowlock_quorum as q (name, token, changed_at)
select $1::text, greatest($2::bigint, b.floor), clock_timestamp() from rowlock_member b where b.id = 1 and b.quorum = $3::text
on conflict (name) do update
   set token = greatest(q.token, excluded.token), changed_at = clock_timestamp()
 where q.token < excluded.token

-- statement found_member
-- Makes this database a member of a new quorum, or of the same one again. A member of another quorum, or of a later
-- epoch, stays what it is. The longest ttl only rises: a session that was opened under a longer one may live.
-- $1 quorum  $2 epoch  $3 members  $4 the server that may vote here, or ''  $5 floor  $6 the longest ttl in µs
insert into rowlock_member as b (id, quorum, epoch, members, ready_for, floor, max_ttl_us, changed_at)
values (1, $1::text, $2::bigint, $3::text, $4::text, $5::bigint, $6::bigint, clock_timestamp())
on conflict (id) do update
   set epoch = excluded.epoch, members = excluded.members, ready_for = excluded.ready_for,
       floor = greatest(b.floor, excluded.floor), max_ttl_us = greatest(b.max_ttl_us, excluded.max_ttl_us),
       changed_at = clock_timestamp()
 where b.quorum = excluded.quorum and b.epoch <= excluded.epoch
