-- As session_setup.sql, where the server does not let us ask which one it is (server_timeline.sql does
-- then, perhaps).
-- $1 lock timeout in ms  $2 statement timeout in ms  $3 the table of leases, with its schema if we know it
with {home}
select null, home.name, {settings} from home
