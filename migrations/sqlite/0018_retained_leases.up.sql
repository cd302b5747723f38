-- A client may keep a lease after its release, for its own threads (client_options::retain, docs/adr/0055). An
-- earlier library leaves the column alone: its clients wait for such a lease until it is given back, a second later.
-- oldest library: 16
--   retained  the grant that its client may keep after the release; null, or another grant: it frees it as usual
alter table rowlock_lease add column retained integer;
