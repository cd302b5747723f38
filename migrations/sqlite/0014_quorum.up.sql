-- Quorum locks: one lock over several independent databases, the members of a quorum. This database may be one of them.
--
-- The greatest token that a quorum lock of that name is known to have had. It only rises.
--   name   of the lock; a client claims a token while it has the lease of the same name
create table rowlock_quorum (
    name text not null primary key,
    token integer not null,
    changed_at integer not null
) without rowid;

-- What this database knows of its quorum: one row, or none if it is no member.
--   quorum      the id of the quorum, the same in all members
--   epoch       rises with each change of the members; what a client claims under another one is refused
--   members     the identities of their servers in their order, one on each line
--   ready_for   the identity of the server that may vote here: another one, such as a promoted standby, may have forgotten
--               grants, and waits for its readmission
--   floor       no token is given below: of tokens that this server may have forgotten
--   max_ttl_us  no session with a longer time to live claims a token: so long a readmission waits
create table rowlock_member (
    id integer not null primary key,
    quorum text not null,
    epoch integer not null,
    members text not null,
    ready_for text not null,
    floor integer not null,
    max_ttl_us integer not null,
    changed_at integer not null
) without rowid;
