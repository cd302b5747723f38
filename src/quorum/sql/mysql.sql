-- statement raise_quorum_token
-- Claims a token of a quorum lock, or writes one: raises what this member knows. Only for the client that has the lease
-- of the name by this grant, in a session on the server that may vote here; under the epoch that the client knows.
--
-- The rows that are read are locked shared, in this order: member, lease, session. A change of the epoch
-- (raise_quorum_epoch) waits for this commit, and then finds this client's lease among those that it asks for; or
-- came before, and then the row's new version is read. The lease is this grant until the commit, so a claim of a later
-- grant comes after this one. If the reply is lost, a repetition raises the token once more, or not at all.
-- $1 name  $2 my session  $3 grant id  $4 quorum  $5 epoch  $6 the token to write, or NULL: claims the next one
insert into rowlock_quorum (name, token, changed_at)
select l.name, greatest(b.floor + ($6 is null), coalesce($6, 0)), {now}
  from rowlock_member b straight_join rowlock_lock l straight_join rowlock_session m
 where b.id = 1 and b.quorum = $4 and b.epoch = $5
   and l.name = $1 and l.session = $2 and l.grant_id = $3
   and m.id = l.session and b.ready_for <> '' and m.server_identity = b.ready_for and m.ttl_us <= b.max_ttl_us and {live}
  lock in share mode
on duplicate key update
   token = greatest(rowlock_quorum.token + ($6 is null), values(token)),
   changed_at = greatest(values(changed_at), rowlock_quorum.changed_at + 1)

-- statement seal_quorum_token
-- Tells this member of the token of a holder that does not count it. Only raises it; needs no grant: the guard of an older
-- holder's transaction (fence_quorum_token) is refused from here on.
-- $1 name  $2 token  $3 quorum
insert into rowlock_quorum (name, token, changed_at)
select $1, greatest($2, b.floor), {now} from rowlock_member b where b.id = 1 and b.quorum = $3
on duplicate key update token = greatest(rowlock_quorum.token, values(token)), changed_at = values(changed_at)

-- statement found_member
-- Makes this database a member of a new quorum, or of the same one again. A member of another quorum, or of a later
-- epoch, stays what it is. The longest ttl only rises: a session that was opened under a longer one may live. The
-- row's epoch is assigned last: an assignment sees those before it.
-- $1 quorum  $2 epoch  $3 members  $4 the server that may vote here, or ''  $5 floor  $6 the longest ttl in µs
insert into rowlock_member (id, quorum, epoch, members, ready_for, floor, max_ttl_us, changed_at)
values (1, $1, $2, $3, $4, $5, $6, {now})
on duplicate key update
   members = if(quorum = values(quorum) and epoch <= values(epoch), values(members), members),
   ready_for = if(quorum = values(quorum) and epoch <= values(epoch), values(ready_for), ready_for),
   floor = if(quorum = values(quorum) and epoch <= values(epoch), greatest(floor, values(floor)), floor),
   max_ttl_us = if(quorum = values(quorum) and epoch <= values(epoch), greatest(max_ttl_us, values(max_ttl_us)), max_ttl_us),
   changed_at = if(quorum = values(quorum) and epoch <= values(epoch), values(changed_at), changed_at),
   epoch = if(quorum = values(quorum) and epoch <= values(epoch), values(epoch), epoch)
