-- Settings of a connection that we own. Isolation: READ COMMITTED, which the compare-and-set
-- protocol is proved at. Durability: a grant must survive a crash, so `off` becomes `on` and anything
-- stricter stays. Timeouts: the server ends a statement that its client may have given up. Plans: all
-- look-ups are by primary key, so a generic plan is as good as one made for the values.
-- The first column tells which server this is: server_identity.sql has its reasons. The second is the
-- schema of our tables, quoted, or NULL.
--
-- The search path becomes pg_catalog, that schema, pg_temp: whoever may create in another schema of the
-- path that was configured cannot plant anything in our way, and in that of our tables only what matches
-- better than pg_catalog's own, which no statement of ours leaves room for (docs/adr/0033). This statement
-- runs under the configured path still, so it names every schema.
-- $1 lock timeout in ms  $2 statement timeout in ms  $3 the table of leases, with its schema if we know it
with {home}
select case when not pg_catalog.pg_is_in_recovery()
            then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system())
                 operator(pg_catalog.||) '/' operator(pg_catalog.||) {timeline} end,
       home.name, {settings}
  from home
