-- Monitoring can tell how long ago a reaper ran. An earlier library leaves the column alone.
-- oldest library: 16
--   reaped_at  when a reaper last ended a round; null = none has since this migration
alter table rowlock_token_floor add column reaped_at bigint;
