-- Which server the floor was last raised for: after the promotion of a replica that did not know all of
-- its primary, the first session there raises it past all tokens that may have been granted.
--   server_identity  '' = none has told yet
alter table rowlock_token_floor add column server_identity varchar(255) not null default '';
