-- Moves a lease of a predecessor, ended in this transaction, to our session, compare-and-set on the
-- row's own columns; the grant id stays. Our session lives here (fragment live).
-- The next token is left out. The row may be what a crash of the server has left: it may have been given
-- on by a commit that others have seen and the disk has not, and somebody may have been given that token.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lease
   set session = $2,
       token = greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 2,
       acquired_at = {now}, changed_at = {now}
 where name = $1 and session = $3 and token = $4 and not coalesce(deadline <= {now}, 0)
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1
