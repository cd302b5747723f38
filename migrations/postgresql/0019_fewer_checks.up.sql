-- PostgreSQL reads the stored expression of each check and plans it anew in every statement that writes a row: about
-- 2 µs a check, where the rest of such a statement takes 20 to 40. Checks that hold by the statements themselves go;
-- the one that would catch a permit returned twice (used >= 0) stays, and so do those of an operator. The tables are locked
-- in the order in which the statements lock their rows, the sessions last: while this waits for a lease's table, their
-- heartbeats go on.
-- oldest library: 16
do $$
declare
    each record;
begin
    for each in
        select cast(c.conrelid as regclass) as of_table, c.conname
          from (values (pg_typeof(cast(null as rowlock_lease)), 1, cast('{_token_check}' as text[])),
                       (pg_typeof(cast(null as rowlock_semaphore)), 2, '{_capacity_check,_kind_check,_check}'),
                       (pg_typeof(cast(null as rowlock_permit_waiter)), 3, '{_permits_check}'),
                       (pg_typeof(cast(null as rowlock_permit)), 4, '{_permits_check}'),
                       (pg_typeof(cast(null as rowlock_session)), 5, '{_id_check,_ttl_us_check}'))
               as ours (kind, place, names)
               join pg_type t on t.oid = ours.kind
               join pg_class r on r.oid = t.typrelid
               join pg_constraint c on c.conrelid = r.oid and c.contype = 'c'
         where c.conname in (select r.relname || n from unnest(ours.names) n)
         order by ours.place
    loop
        execute format('alter table %s drop constraint %I', each.of_table, each.conname);
    end loop;
end $$;
